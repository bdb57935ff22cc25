package mpi

import "slices"

// cartesian is a grid of ranks (MPI 4.1 §8.5). It is immutable.
type cartesian struct {
	dims    []int
	periods []bool
}

// Topology is what the ranks of a communicator are arranged in.
type Topology int

// Topologies.
const (
	NoTopology Topology = iota
	CartTopology
	GraphTopology
	DistGraphTopology
)

// Topology returns how the communicator's ranks are arranged.
func (c *Comm) Topology() Topology {
	switch {
	case c.cart != nil:
		return CartTopology
	case c.graph != nil && c.graph.dist:
		return DistGraphTopology
	case c.graph != nil:
		return GraphTopology
	}
	return NoTopology
}

// DimsCreate fills the zeros of dims so that their product is nodes and they are
// as close to each other as can be, in falling order (MPI 4.1 §8.5.2).
func DimsCreate(nodes int, dims []int) error {
	rest, free := nodes, 0
	for i, d := range dims {
		switch {
		case d < 0:
			return fail("DimsCreate", ErrDims, "dims[%d] is %d", i, d)
		case d == 0:
			free++
		case rest%d != 0:
			return fail("DimsCreate", ErrDims, "%d does not divide %d nodes", d, nodes)
		default:
			rest /= d
		}
	}
	if nodes <= 0 || free == 0 && rest != 1 {
		return fail("DimsCreate", ErrDims, "%d nodes do not make a grid of %v", nodes, dims)
	}
	found := balanced(rest, free)
	for i := range dims {
		if dims[i] == 0 {
			dims[i], found = found[0], found[1:]
		}
	}
	return nil
}

// balanced returns n factors of nodes in falling order, with the smallest
// possible largest one, and so on with the rest.
func balanced(nodes, n int) []int {
	if n == 0 {
		return nil
	}
	if n == 1 {
		return []int{nodes}
	}
	for _, first := range divisors(nodes) {
		if less(first, n, nodes) {
			continue
		}
		if rest := balanced(nodes/first, n-1); rest[0] <= first {
			return append([]int{first}, rest...)
		}
	}
	return nil // not reached: first = nodes always does
}

// divisors returns those of n, in rising order.
func divisors(n int) (all []int) {
	var large []int
	for d := 1; d <= n/d; d++ {
		if n%d == 0 {
			all = append(all, d)
			if d < n/d {
				large = append(large, n/d)
			}
		}
	}
	slices.Reverse(large)
	return append(all, large...)
}

// less reports whether a to the n is less than b.
func less(a, n, b int) bool {
	p := 1
	for range n {
		if p > (b-1)/a {
			return false
		}
		p *= a
	}
	return true
}

// CartCreate makes a communicator whose ranks form a grid of the given size; the
// last dimension varies fastest. periods say which dimensions close to a ring.
// Ranks beyond the grid get nil. With reorder, ranks of one site, and within it
// of one host, are put next to each other. It is collective.
func (c *Comm) CartCreate(dims []int, periods []bool, reorder bool) (*Comm, error) {
	if err := c.usable("CartCreate"); err != nil {
		return nil, err
	}
	switch {
	case c.Inter():
		return nil, fail("CartCreate", ErrComm, "an intercommunicator has no grid")
	case len(periods) != len(dims):
		return nil, c.misused(fail("CartCreate", ErrArg, "%d periods for %d dimensions", len(periods), len(dims)))
	}
	n, err := c.gridSize("CartCreate", dims)
	if err != nil {
		return nil, c.misused(err)
	}
	color, key := 0, c.rank
	if c.rank >= n {
		color = Undefined
	} else if reorder {
		key = c.place(c.rank)
	}
	d, err := c.split("CartCreate", color, key)
	if err != nil {
		return nil, err
	}
	if d != nil {
		d.cart = &cartesian{slices.Clone(dims), slices.Clone(periods)}
	}
	return d, nil
}

// gridSize returns how many ranks a grid has, which the communicator must have too.
func (c *Comm) gridSize(op string, dims []int) (int, error) {
	n := 1
	for i, d := range dims {
		if d <= 0 {
			return 0, fail(op, ErrDims, "dims[%d] is %d", i, d)
		}
		if n *= min(d, c.Size()+1); n > c.Size() { // no product of two such overflows
			return 0, fail(op, ErrTopology, "a grid of %v is more than %d ranks", dims, c.Size())
		}
	}
	return n, nil
}

func (c *Comm) needCart(op string) error {
	if err := c.exists(op); err != nil {
		return err
	}
	if c.cart == nil {
		return fail(op, ErrTopology, "the communicator has no grid; CartCreate makes one")
	}
	return nil
}

// CartGet returns the grid and the caller's place in it.
func (c *Comm) CartGet() (dims []int, periods []bool, coords []int, err error) {
	if err := c.needCart("CartGet"); err != nil {
		return nil, nil, nil, err
	}
	coords, err = c.CartCoords(c.rank)
	return slices.Clone(c.cart.dims), slices.Clone(c.cart.periods), coords, err
}

// CartRank returns the rank at a place. In periodic dimensions any coordinate
// will do; elsewhere one outside is an error.
func (c *Comm) CartRank(coords []int) (int, error) {
	if err := c.needCart("CartRank"); err != nil {
		return 0, err
	}
	if len(coords) < len(c.cart.dims) {
		return 0, fail("CartRank", ErrArg, "%d coordinates in %d dimensions", len(coords), len(c.cart.dims))
	}
	r := c.cart.rank(coords)
	if r == ProcNull {
		return 0, fail("CartRank", ErrArg, "%v is outside of the grid %v", coords, c.cart.dims)
	}
	return r, nil
}

// rank returns ProcNull outside of the grid.
func (g *cartesian) rank(coords []int) int {
	r := 0
	for i, d := range g.dims {
		x := coords[i]
		if g.periods[i] {
			x = ((x % d) + d) % d
		} else if x < 0 || x >= d {
			return ProcNull
		}
		r = r*d + x
	}
	return r
}

// CartCoords returns the place of a rank.
func (c *Comm) CartCoords(rank int) ([]int, error) {
	if err := c.needCart("CartCoords"); err != nil {
		return nil, err
	}
	if rank < 0 || rank >= c.Size() {
		return nil, fail("CartCoords", ErrRank, "rank %d of %d", rank, c.Size())
	}
	coords := make([]int, len(c.cart.dims))
	for i := len(coords) - 1; i >= 0; i-- {
		coords[i] = rank % c.cart.dims[i]
		rank /= c.cart.dims[i]
	}
	return coords, nil
}

// CartShift returns whom to receive from and whom to send to so that data moves
// by displacement steps along a dimension; ProcNull beyond an edge.
func (c *Comm) CartShift(dimension, displacement int) (source, dest int, err error) {
	if err := c.needCart("CartShift"); err != nil {
		return 0, 0, err
	}
	if dimension < 0 || dimension >= len(c.cart.dims) {
		return 0, 0, fail("CartShift", ErrDims, "dimension %d of %d", dimension, len(c.cart.dims))
	}
	coords, err := c.CartCoords(c.rank)
	if err != nil {
		return 0, 0, err
	}
	at, d := coords[dimension], c.cart.dims[dimension]
	if c.cart.periods[dimension] {
		displacement %= d
	} else {
		displacement = max(-d, min(displacement, d)) // beyond an edge in any case
	}
	coords[dimension] = at - displacement
	source = c.cart.rank(coords)
	coords[dimension] = at + displacement
	return source, c.cart.rank(coords), nil
}

// CartSub cuts the grid into grids of the dimensions to keep. It is collective.
func (c *Comm) CartSub(keep []bool) (*Comm, error) {
	if err := c.needCart("CartSub"); err != nil {
		return nil, err
	}
	if err := c.usable("CartSub"); err != nil {
		return nil, err
	}
	if len(keep) != len(c.cart.dims) {
		return nil, c.misused(fail("CartSub", ErrArg, "%d flags for %d dimensions", len(keep), len(c.cart.dims)))
	}
	coords, err := c.CartCoords(c.rank)
	if err != nil {
		return nil, err
	}
	sub := &cartesian{}
	color, key := 0, 0
	for i, k := range keep {
		if k {
			key = key*c.cart.dims[i] + coords[i]
			sub.dims, sub.periods = append(sub.dims, c.cart.dims[i]), append(sub.periods, c.cart.periods[i])
		} else {
			color = color*c.cart.dims[i] + coords[i]
		}
	}
	d, err := c.split("CartSub", color, key)
	if err != nil {
		return nil, err
	}
	d.cart = sub
	return d, nil
}

// CartMap returns the rank that CartCreate with reorder would give the caller;
// Undefined if none.
func (c *Comm) CartMap(dims []int, periods []bool) (int, error) {
	if err := c.usable("CartMap"); err != nil {
		return 0, err
	}
	n, err := c.gridSize("CartMap", dims)
	if err != nil {
		return 0, err
	}
	if c.rank >= n {
		return Undefined, nil
	}
	before := 0
	for r := range n {
		if r != c.rank && c.place(r) < c.place(c.rank) {
			before++
		}
	}
	return before, nil
}

// place orders ranks by site, host and rank.
func (c *Comm) place(rank int) int {
	return (int(c.topo.Site[rank])*c.Size()+int(c.topo.Host[rank]))*c.Size() + rank
}
