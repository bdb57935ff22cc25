package engine

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// grouped makes engines of two sites that share so many connections, interleaved.
func grouped(links int) maker {
	return func(t testing.TB, n int, adapt ...func(*Config)) []*Engine {
		t.Helper()
		d := directory{cards: make([][]byte, n)}
		es := make([]*Engine, n)
		members, sites := make([]Proc, n), make([]int, n)
		for i := range es {
			members[i], sites[i] = Proc(i), i%2
		}
		for i := range es {
			cfg := Config{Self: Proc(i), Size: n, Job: []byte("job"), Resolve: d.resolve, Addresses: []string{"127.0.0.1"}}
			for _, f := range adapt {
				f(&cfg)
			}
			var err error
			if es[i], err = New(cfg); err != nil {
				t.Fatal(err)
			}
			if err := es[i].Group(sites, links); err != nil {
				t.Fatal(err)
			}
			d.cards[i] = es[i].Card()
		}
		for _, e := range es {
			e.OpenContext(world, members)
			if err := e.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { closeAll(t, es) })
		return es
	}
}

// TestGroupCounts has all of two sites of eight talk to all, small and large, and
// counts the connections between the sites.
func TestGroupCounts(t *testing.T) {
	const links = 2
	es := grouped(links)(t, 16)
	each(es, func(i int, e *Engine) {
		for k := range es {
			to, from := Proc((i+k)%len(es)), Proc((i-k+len(es))%len(es))
			for tag, n := range []int{1, 1000, 300_000} {
				in := irecv(t, e, from, int32(tag), make([]byte, n))
				send(t, e, to, int32(tag), pattern(n, i))
				wait(t, e, in)
			}
		}
	})
	ends := 0
	for i, e := range es {
		s := e.GroupStats()
		if ends += s.Far; s.Far > links {
			t.Errorf("%d has %d connections to the other site", i, s.Far)
		}
		if s.Dropped > 0 {
			t.Errorf("%d has dropped %d packets", i, s.Dropped)
		}
	}
	if ends > 2*links {
		t.Errorf("%d sockets between the sites, want %d", ends, 2*links)
	}
}

// TestGroupDeaths kills a process, and then a gateway: who talked with it, or
// through it, is told; others go on.
func TestGroupDeaths(t *testing.T) {
	es := grouped(2)(t, 8) // gateways are 0, 2 and 1, 3
	each(es, func(i int, e *Engine) {
		for k := range es {
			if k != i {
				in := irecv(t, e, Proc(k), 1, make([]byte, 10))
				send(t, e, Proc(k), 1, pattern(10, i))
				wait(t, e, in)
			}
		}
	})
	fails := func(e *Engine, from Proc) {
		t.Helper()
		if _, err := e.Recv(&RecvArgs{From: from, Context: world, Tag: 2, Buf: make([]byte, 1)}); !errors.As(err, &ErrProcFailed{}) {
			t.Errorf("receive from %d: %v", from, err)
		}
	}
	crash(t, es[7:])
	fails(es[0], 7)
	fails(es[4], 7)
	crash(t, es[3:4]) // the second gateway of its site
	fails(es[4], 3)   // 4 and 3 are of the second lane by their places 2 and 1
	fails(es[6], 1)   // and so are 6 and 1, by 3 and 0, though 1 lives
	send(t, es[4], 1, 2, pattern(1000, 1))
	if got, _ := recv(t, es[1], 4, 2, 1000); !bytes.Equal(got, pattern(1000, 1)) {
		t.Error("by the other lane: other contents")
	}
	crash(t, es) // the others' links to each other would wait for those that failed
}
