package traffic

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// made is a sample of messages of a size, from what f says of each pair.
func made(n int, size uint64, f func(i, j int) uint64) Sample {
	s := Sample{Bytes: NewMatrix(n)}
	for i := range n {
		for j := range n {
			if b := f(i, j); i != j && b > 0 {
				s.Bytes.Add(i, j, b)
				s.InThem += b
				s.Messages += max(1, b/size)
			}
		}
	}
	s.Ops[record.Isend] = record.Calls{Calls: s.Messages, Bytes: s.InThem}
	return s
}

// as has the bytes of a sample be of operations instead.
func (s Sample) as(o record.Op, calls uint64, more ...record.Op) Sample {
	s.Ops[o] = record.Calls{Calls: calls, Bytes: s.InThem}
	s.Ops[record.Isend], s.Messages, s.InThem = record.Calls{}, 0, 0
	for _, m := range more {
		s.Ops[m].Calls = calls
	}
	return s
}

func when(b bool, n uint64) uint64 {
	if b {
		return n
	}
	return 0
}

// onGrid is an exchange on a grid, with pairs as pattern.go counts them.
func onGrid(bytes uint64, around bool, dims ...int) func(i, j int) uint64 {
	ring := make([]bool, len(dims))
	for i := range ring {
		ring[i] = around
	}
	set := grid(dims, ring)
	return func(i, j int) uint64 { return when(set[pair(i, j)], bytes) }
}

func lists(n int, f func(add func(a, b int))) func(i, j int) uint64 {
	set := map[[2]int]bool{}
	f(func(a, b int) { set[[2]int{a, b}] = true })
	return func(i, j int) uint64 { return when(set[[2]int{i, j}], 1<<20) }
}

// nasCG is the program's own table of partners (CG/cg.f, setup_submatrix_info), for
// n a power of two.
func nasCG(n int) func(i, j int) uint64 {
	return lists(n, func(add func(a, b int)) {
		log := 0
		for 1<<(log+1) <= n {
			log++
		}
		cols := 1 << ((log + 1) / 2)
		rows := n / cols
		for me := range n {
			row, col := me/cols, me%cols
			for div := cols; div > 1; div /= 2 {
				j := (col+div/2)%div + col/div*div
				add(me, row*cols+j)
			}
			if rows == cols {
				add(me, me%rows*rows+me/rows)
			} else {
				add(me, 2*(me/2%rows*rows+me/2/rows)+me%2)
			}
		}
	})
}

// nasBT is BT's (BT/make_set.f).
func nasBT(q int) func(i, j int) uint64 {
	return lists(q*q, func(add func(a, b int)) {
		for p := range q * q {
			i, j := p%q, p/q
			for _, to := range [][2]int{{i + q - 1, j}, {i, j + q - 1}, {i + 1, j + q - 1}, {i + 1, j}, {i, j + 1}, {i + q - 1, j + 1}} {
				add(p, to[0]%q+q*(to[1]%q))
			}
		}
	})
}

func every(bytes uint64) func(i, j int) uint64 { return func(int, int) uint64 { return bytes } }

// samples are matrices as the patterns make them.
func samples() map[string]struct {
	s          Sample
	name, flag string
} {
	const mb = 1 << 20
	type row = struct {
		s          Sample
		name, flag string
	}
	line := func(i, j int) uint64 { return when(j == i+1, mb) }
	return map[string]row{
		"nothing":           {made(4, 1, every(0)), Silent, ""},
		"two":               {made(2, 1, every(5)), Pair, ""},
		"messages to all":   {made(8, mb, every(mb)), AllToAll, "alltoall"},
		"alltoall":          {made(8, mb, every(mb)).as(record.Alltoall, 10), AllToAll, "alltoall"},
		"ft":                {made(8, mb, every(mb)).as(record.Alltoall, 10, record.Reduce), FT, "ft"},
		"is":                {made(8, mb, every(mb)).as(record.Alltoallv, 10, record.Allreduce), IS, "is"},
		"alltoallw":         {made(8, mb, every(mb)).as(record.Alltoallw, 10), AllToAll, "alltoall"},
		"uneven alltoallv":  {made(8, mb, func(i, j int) uint64 { return uint64(1+i*j*j) << 10 }).as(record.Alltoallv, 10), AllToAll, "alltoall"},
		"allreduce":         {made(8, mb, every(mb)).as(record.Allreduce, 10), Reduction, ""},
		"ring one way":      {made(8, mb, func(i, j int) uint64 { return when(j == (i+1)%8, mb) }), Ring, ""},
		"ring both ways":    {made(8, mb, onGrid(mb, true, 8)), Ring, ""},
		"ring of four":      {made(4, mb, onGrid(mb, true, 4)), Ring, ""},
		"cg 8":              {made(8, mb, nasCG(8)), CG, "cg"},
		"cg 16":             {made(16, mb, nasCG(16)), CG, "cg"},
		"cg 32":             {made(32, mb, nasCG(32)), CG, "cg"},
		"cg 64":             {made(64, mb, nasCG(64)), CG, "cg"},
		"bt 9":              {made(9, mb, nasBT(3)), BTSP, "bt"},
		"bt 16":             {made(16, mb, nasBT(4)), BTSP, "bt"},
		"bt 36":             {made(36, mb, nasBT(6)), BTSP, "bt"},
		"pipeline":          {made(6, mb, line), LU, "lu"},
		"lu 4×4":            {made(16, 400, onGrid(mb, false, 4, 4)), LU, "lu"},
		"lu 8×4":            {made(32, 1600, onGrid(4*mb, false, 4, 8)), LU, "lu"},
		"halo line":         {made(6, mb, onGrid(mb, false, 6)), Halo, ""},
		"halo 2×2":          {made(4, mb, onGrid(mb, false, 2, 2)), Halo, ""},
		"halo 3×4":          {made(12, mb, onGrid(mb, false, 3, 4)), Halo, ""},
		"halo torus":        {made(25, mb, onGrid(mb, true, 5, 5)), Halo, ""},
		"halo 3×3×3":        {made(27, mb, onGrid(mb, false, 3, 3, 3)), Halo, ""},
		"master":            {made(8, mb, func(i, j int) uint64 { return when(i == 0 || j == 0, mb) }), Master, ""},
		"master is 5":       {made(8, mb, func(i, j int) uint64 { return when(i == 5, mb/2) + when(j == 5, mb) }), Master, ""},
		"three in a line":   {made(3, mb, onGrid(mb, false, 3)), Halo, ""},
		"master of three":   {made(3, mb, func(i, j int) uint64 { return when(i == 0 || j == 0, mb) }), Master, ""},
		"groups of three":   {made(12, mb, func(i, j int) uint64 { return when(i%4 == j%4, mb) }), Neighbors, ""},
		"scattered one way": {made(12, mb, func(i, j int) uint64 { return when((i*7+j*5)%11 == 3, mb) }), Irregular, ""},
	}
}

// TestName names every pattern, and again with noise: sizes that differ by a fifth,
// and a little from everybody to everybody.
func TestName(t *testing.T) {
	for name, tt := range samples() {
		t.Run(name, func(t *testing.T) {
			got := Name(tt.s)
			if got.Name != tt.name || got.Flag != tt.flag || got.Why == "" {
				t.Errorf("got %+v, want %s (%s)", got, tt.name, tt.flag)
			}
			if tt.name == Silent {
				return
			}
			r := rand.New(rand.NewPCG(1, 2))
			noisy := tt.s
			noisy.Bytes = NewMatrix(tt.s.Bytes.N)
			pairs := uint64(tt.s.Bytes.N * (tt.s.Bytes.N - 1))
			for i := range tt.s.Bytes.N {
				for j := range tt.s.Bytes.N {
					b := tt.s.Bytes.At(i, j)
					noisy.Bytes.Add(i, j, b+uint64(float64(b)*0.2*r.Float64())+tt.s.Bytes.Total()/pairs/50)
				}
			}
			if got := Name(noisy); got.Name != tt.name {
				t.Errorf("with noise: got %+v, want %s", got, tt.name)
			}
		})
	}
}

func TestMatrix(t *testing.T) {
	m := NewMatrix(4)
	m.Add(0, 1, 1)
	m.Add(1, 2, 10)
	m.Add(3, 0, 100)
	m.Add(2, 2, 1000)
	f := m.Fold([]int{0, 0, 1, 1}, 2)
	if m.Total() != 111 || f.At(0, 0) != 1 || f.At(0, 1) != 10 || f.At(1, 0) != 100 || f.At(1, 1) != 0 {
		t.Errorf("total %d, folded %v", m.Total(), f)
	}
	if got := CutOf(m, []int{0, 1, 2, 3}, []int{0, 0, 1, 1}); got != (Cut{110, 1}) {
		t.Errorf("cut %+v", got)
	}
}

// TestAssign takes a ring and pairs whose ranks were dealt out badly, and finds the
// least that can cross.
func TestAssign(t *testing.T) {
	for name, tt := range map[string]struct {
		m          *Matrix
		node, site []int
		want       Cut
	}{
		"ring over two sites": {made(8, 1, onGrid(10, true, 8)).Bytes, []int{0, 1, 0, 1, 0, 1, 0, 1}, []int{0, 1}, Cut{Sites: 40}},
		"pairs": {made(8, 1, func(i, j int) uint64 { return when(i^j == 4, 10) }).Bytes,
			[]int{0, 0, 1, 1, 2, 2, 3, 3}, []int{0, 0, 1, 1}, Cut{}},
		"grid over four nodes": {made(16, 1, onGrid(10, false, 4, 4)).Bytes,
			[]int{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, []int{0, 1, 0, 1}, Cut{Sites: 80, Nodes: 80}},
		"uneven":     {made(5, 1, onGrid(10, false, 5)).Bytes, []int{0, 1, 1, 0, 1}, []int{0, 1}, Cut{Sites: 20}},
		"all-to-all": {made(6, 1, every(10)).Bytes, []int{0, 1, 2, 0, 1, 2}, []int{0, 0, 1}, Cut{Sites: 160, Nodes: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Assign(tt.m, tt.node, tt.site)
			if c := CutOf(tt.m, got, tt.site); c != tt.want {
				t.Errorf("%v: %+v, want %+v", got, c, tt.want)
			}
			a, b := slices.Clone(got), slices.Clone(tt.node)
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Errorf("other slots: %v for %v", got, tt.node)
			}
		})
	}
}

// TestAssignNeverWorse tries matrices of chance.
func TestAssignNeverWorse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		n, nodes := 4+r.IntN(20), 2+r.IntN(5)
		m, node, site := NewMatrix(n), make([]int, n), make([]int, nodes)
		for i := range site {
			site[i] = i % 3
		}
		for i := range n {
			node[i] = r.IntN(nodes)
			for range 3 {
				m.Add(i, r.IntN(n), uint64(r.IntN(1000)))
			}
		}
		before, after := CutOf(m, node, site), CutOf(m, Assign(m, node, site), site)
		if before.less(after) {
			t.Errorf("%d ranks: %+v became %+v", n, before, after)
		}
	}
}

// TestOrder puts nodes that were named in turn by site together where that helps.
func TestOrder(t *testing.T) {
	ring := made(4, 1, onGrid(10, true, 4)).Bytes
	line := made(8, 1, onGrid(10, false, 8)).Bytes
	for name, tt := range map[string]struct {
		m           *Matrix
		slots, site []int
		want        []int
	}{
		"ring":            {ring, []int{1, 1, 1, 1}, []int{0, 1, 0, 1}, []int{0, 2, 1, 3}},
		"line":            {line, []int{2, 2, 2, 2}, []int{0, 1, 0, 1}, []int{0, 2, 1, 3}},
		"as good already": {line, []int{2, 2, 2, 2}, []int{0, 0, 1, 1}, []int{0, 1, 2, 3}},
		"all-to-all":      {made(4, 1, every(10)).Bytes, []int{1, 1, 1, 1}, []int{0, 1, 0, 1}, []int{0, 1, 2, 3}},
		"sizes differ":    {line, []int{1, 4, 2, 1}, []int{0, 1, 0, 0}, []int{1, 0, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Order(tt.m, tt.slots, tt.site)
			if CutOf(tt.m, Placed(got, tt.slots), tt.site) != CutOf(tt.m, Placed(tt.want, tt.slots), tt.site) {
				t.Errorf("got %v, want %v or as good", got, tt.want)
			}
		})
	}
	if got := Placed([]int{1, 0}, []int{1, 2}); !reflect.DeepEqual(got, []int{1, 1, 0}) {
		t.Errorf("placed %v", got)
	}
}

// TestLarge bounds the work on a job of many ranks by finishing at all.
func TestLarge(t *testing.T) {
	const n, nodes = 512, 64
	m, node, site, slots := NewMatrix(n), make([]int, n), make([]int, nodes), make([]int, nodes)
	for i := range n {
		node[i] = i / (n / nodes)
		m.Add(i, (i+1)%n, 10)
		m.Add(i, (i+37)%n, 3)
	}
	for i := range nodes {
		site[i], slots[i] = i%2, n/nodes
	}
	before := CutOf(m, node, site)
	if after := CutOf(m, Assign(m, node, site), site); !after.less(before) {
		t.Errorf("%+v became %+v", before, after)
	}
	if after := CutOf(m, Placed(Order(m, slots, site), slots), site); !after.less(before) {
		t.Errorf("by order %+v became %+v", before, after)
	}
}
