package mpi_test

import (
	"sync"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// spawnCase is a case whose ranks start others: those run child.
func spawnCase(file string, ranks int, body, child func(c *mpi.Comm)) mpichCase {
	return mpichCase{file: file, ranks: ranks, body: func(c *mpi.Comm) error {
		body(c)
		return nil
	}, opts: []mpitest.Option{mpitest.Program("child", func(c *mpi.Comm) (err error) {
		defer recoverCase(&err)
		child(c)
		return nil
	})}}
}

// children starts n of them.
func children(c *mpi.Comm, root, n int) *mpi.Comm {
	x, err := c.Spawn(root, mpi.Program{N: n, Path: "child"})
	if err != nil {
		endCase(err)
	}
	return x
}

// meets is what most children do: sum with their parents and leave.
func meets(c *mpi.Comm) {
	p := c.World().Parent()
	alive(p)
	must(p.Disconnect())
}

// port opens a port at the root and tells its name to all.
func port(c *mpi.Comm, root int) string {
	name := make([]byte, 8192)
	if c.Rank() == root {
		copy(name, get(c.World().OpenPort()))
	}
	must(mpi.Bcast(c, name, root))
	for i, b := range name {
		if b == 0 {
			return string(name[:i])
		}
	}
	return string(name)
}

// conacc joins the ranks below at, which accept, and the others, which connect.
func conacc(c *mpi.Comm, at int, name string) *mpi.Comm {
	color := 0
	if c.Rank() >= at {
		color = 1
	}
	half := get(c.Split(color, 0))
	var x *mpi.Comm
	if color == 0 {
		x = get(half.Accept(name, 0))
	} else {
		x = get(half.Connect(name, 0))
	}
	must(half.Free())
	return x
}

var mpichSpawn = []mpichCase{
	spawnCase("spawn/spawn1.c", 2, func(c *mpi.Comm) {
		x := children(c, 0, 2)
		is("children", x.RemoteSize(), 2)
		if c.Rank() == 0 {
			for r := range 2 {
				must(mpi.Send(x, []int{10 + r}, r, 1))
			}
		}
		is("parent of the first", c.World().Parent(), nil)
		alive(x)
		must(x.Disconnect())
	}, func(c *mpi.Comm) {
		in := []int{0}
		must(second(mpi.Recv(c.World().Parent(), in, 0, 1)))
		is("told", in[0], 10+c.Rank())
		meets(c)
	}),
	spawnCase("spawn/spawn2.c", 3, func(c *mpi.Comm) {
		// Each by itself.
		x := children(c.World().Self(), 0, 1)
		is("sizes", x.Size()+10*x.RemoteSize(), 11)
		alive(x)
		must(x.Disconnect())
	}, meets),
	spawnCase("spawn/spawn_rootargs.c", 3, func(c *mpi.Comm) {
		var ps []mpi.Program
		if c.Rank() == 2 { // others' programs are not looked at
			ps = []mpi.Program{{N: 1, Path: "child"}}
		}
		x := get(c.Spawn(2, ps...))
		alive(x)
		must(x.Disconnect())
	}, meets),
	spawnCase("spawn/spawninfo1.c", 1, func(c *mpi.Comm) {
		x := get(c.Spawn(0, mpi.Program{N: 2, Path: "child", Info: map[string]string{"wdir": ".", "nobody knows this": "x"}}))
		alive(x)
		must(x.Disconnect())
	}, meets),
	spawnCase("spawn/spawnintra.c", 2, func(c *mpi.Comm) {
		m := get(children(c, 0, 2).Merge(false))
		is("size", m.Size(), 4)
		is("rank", m.Rank(), c.Rank())
		alive(m)
		must(m.Free())
	}, func(c *mpi.Comm) {
		m := get(c.World().Parent().Merge(true))
		is("rank", m.Rank(), 2+c.Rank())
		alive(m)
		must(m.Free())
	}),
	spawnCase("spawn/spawnmult2.c", 2, func(c *mpi.Comm) {
		x := get(c.Spawn(0, mpi.Program{N: 1, Path: "child"}, mpi.Program{N: 2, Path: "child"}))
		is("children", x.RemoteSize(), 3)
		alive(x)
		must(x.Disconnect())
	}, func(c *mpi.Comm) {
		is("program", c.World().Appnum(), []int{0, 1, 1}[c.Rank()])
		meets(c)
	}),
	spawnCase("spawn/spaiccreate.c", 2, func(c *mpi.Comm) {
		// From the merged one, an intercommunicator of the two again.
		m := get(children(c, 0, 2).Merge(false))
		x := get(c.InterCreate(0, m, 2, 7))
		alive(x)
		must(x.Free(), m.Free())
	}, func(c *mpi.Comm) {
		m := get(c.World().Parent().Merge(true))
		x := get(c.InterCreate(0, m, 0, 7))
		alive(x)
		must(x.Free(), m.Free())
	}),
	spawnCase("spawn/spaiccreate2.c", 2, func(c *mpi.Comm) { mixed(children(c, 0, 2), false) },
		func(c *mpi.Comm) { mixed(c.World().Parent(), true) }),
	spawnCase("spawn/taskmanager.c", 2, func(c *mpi.Comm) {
		// One job after another.
		for i := range 6 {
			x := children(c, i%2, 1+i%3)
			alive(x)
			must(x.Disconnect())
		}
	}, meets),
	spawnCase("spawn/concurrent_spawns.c", 1, func(c *mpi.Comm) {
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			d := get(c.Dup())
			wg.Go(func() {
				defer recoverCase(&errs[i])
				x := children(d, 0, 1)
				alive(x)
				must(x.Disconnect(), d.Free())
			})
		}
		wg.Wait()
		must(errs...)
	}, meets),
	spawnCase("spawn/spaconacc.c", 1, func(c *mpi.Comm) {
		// The child connects to a port it is told.
		name := port(c, 0)
		x := children(c, 0, 1)
		must(mpi.Send(x, []byte(name), 0, 0))
		y := get(c.Accept(name, 0))
		alive(y)
		must(y.Disconnect(), x.Disconnect(), c.World().ClosePort(name))
	}, func(c *mpi.Comm) {
		p := c.World().Parent()
		name := make([]byte, get(p.Probe(0, 0)).Bytes)
		must(second(mpi.Recv(p, name, 0, 0)))
		y := get(c.Connect(string(name), 0))
		alive(y)
		must(y.Disconnect(), p.Disconnect())
	}),
	spawnCase("spawn/disconnect.c", 2, func(c *mpi.Comm) {
		x := children(c, 0, 2)
		for r := range 2 {
			must(mpi.Send(x, []int{c.Rank()}, r, 0))
		}
		must(x.Disconnect()) // waits for the children's
	}, func(c *mpi.Comm) {
		p := c.World().Parent()
		for r := range 2 {
			in := []int{-1}
			must(second(mpi.Recv(p, in, r, 0)))
			is("parent", in[0], r)
		}
		must(p.Disconnect())
	}),
	spawnCase("spawn/disconnect2.c", 3, func(c *mpi.Comm) {
		// Some of the parents only; the others go on by themselves.
		d := get(c.Split(c.Rank()/2, 0))
		if c.Rank() < 2 {
			x := children(d, 0, 2)
			alive(x)
			must(x.Disconnect())
		}
		alive(c)
		must(d.Free())
	}, meets),
	{file: "spawn/disconnect_reconnect.c", ranks: 4, body: func(c *mpi.Comm) error {
		name := port(c, 0)
		for range 10 {
			x := conacc(c, 2, name)
			alive(x)
			must(x.Disconnect(), mpi.Barrier(c))
		}
		return closeAt(c, 0, name)
	}},
	{file: "spawn/disconnect_reconnect2.c", ranks: 3, body: func(c *mpi.Comm) error {
		// A new port each time.
		for range 5 {
			name := port(c, 0)
			x := conacc(c, 1, name)
			alive(x)
			must(x.Disconnect(), closeAt(c, 0, name))
		}
		return nil
	}},
	{file: "spawn/selfconacc.c", ranks: 2, body: func(c *mpi.Comm) error {
		name := port(c, 0)
		self := c.World().Self()
		var x *mpi.Comm
		if c.Rank() == 0 {
			x = get(self.Accept(name, 0))
		} else {
			x = get(self.Connect(name, 0))
		}
		alive(x)
		return first(x.Disconnect(), closeAt(c, 0, name))
	}},
	{file: "spawn/multiple_ports.c", ranks: 3, body: func(c *mpi.Comm) error {
		// Rank 0 accepts at two ports, in the other order than they were opened.
		a, b := port(c, 0), port(c, 0)
		self := c.World().Self()
		switch c.Rank() {
		case 0:
			second, first := get(self.Accept(b, 0)), get(self.Accept(a, 0))
			for i, x := range []*mpi.Comm{first, second} {
				in := []int{0}
				get(mpi.Recv(x, in, 0, 0))
				is("who", in[0], i+1)
				must(x.Disconnect())
			}
		default:
			x := get(self.Connect([]string{a, b}[c.Rank()-1], 0))
			must(mpi.Send(x, []int{c.Rank()}, 0, 0), x.Disconnect())
		}
		return first(closeAt(c, 0, a), closeAt(c, 0, b))
	}},
	{file: "spawn/namepub.c", ranks: 2, body: func(c *mpi.Comm) error {
		w := c.World()
		if c.Rank() == 0 {
			must(w.PublishName("fred", "a port of fred"))
		}
		must(mpi.Barrier(c))
		is("port", get(w.LookupName("fred")), "a port of fred")
		must(mpi.Barrier(c))
		if c.Rank() == 0 {
			must(w.UnpublishName("fred"))
		}
		must(mpi.Barrier(c))
		refused("when it is taken back", second(w.LookupName("fred")), mpi.ErrName)
		return nil
	}},
	{file: "spawn/namepub_conn.c", ranks: 2, body: func(c *mpi.Comm) error {
		w := c.World()
		var x *mpi.Comm
		if c.Rank() == 0 {
			name := get(w.OpenPort())
			must(w.PublishName("server", name), mpi.Barrier(c))
			x = get(w.Self().Accept(name, 0))
			must(w.UnpublishName("server"), w.ClosePort(name))
		} else {
			must(mpi.Barrier(c))
			x = get(w.Self().Connect(get(w.LookupName("server")), 0))
		}
		alive(x)
		return x.Disconnect()
	}},
	{file: "spawn/pgroup_intercomm_test.c", ranks: 5, body: func(c *mpi.Comm) error {
		// A communicator of any members, made by merging one after another.
		members := []int{4, 1, 3}
		d := c.World().Self()
		for i := 1; i < len(members); i++ {
			first, next := members[0], members[i]
			joined := false
			for _, m := range members[:i+1] {
				joined = joined || m == c.Rank()
			}
			if !joined {
				continue
			}
			remote, high := next, false
			if c.Rank() == next {
				remote, high = first, true
			}
			x := get(d.InterCreate(0, c, remote, i))
			d = get(x.Merge(high))
			must(x.Free())
		}
		if d.Size() > 1 {
			all := make([]int, 3)
			must(mpi.Allgather(d, []int{c.Rank()}, all))
			are("members", all, members)
		}
		return nil
	}},
}

// mixed makes an intercommunicator whose sides have ranks of both jobs.
func mixed(x *mpi.Comm, high bool) {
	m := get(x.Merge(high))
	half := get(m.Split(m.Rank()%2, m.Rank()))
	y := get(half.InterCreate(0, m, (m.Rank()+1)%2, 123))
	in := []int{-1}
	must(second(mpi.Sendrecv(y, []int{y.Rank()}, y.Rank(), 4, in, y.Rank(), 4)))
	is("opposite", in[0], y.Rank())
	must(mpi.Barrier(y), y.Free(), half.Free(), m.Free(), x.Disconnect())
}

// closeAt has the owner of a port close it when all are done with it.
func closeAt(c *mpi.Comm, owner int, name string) error {
	if err := mpi.Barrier(c); err != nil || c.Rank() != owner {
		return err
	}
	return c.World().ClosePort(name)
}
