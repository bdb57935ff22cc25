package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestAllocations holds small messages to allocating nothing at either side.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, k := range kinds {
		if k.name == "conn" || k.name == "group" {
			continue // its goroutines' buffers grow now and then
		}
		t.Run(k.name, func(t *testing.T) {
			es := k.make(t, 2)
			buf := make([]byte, 64)
			out := SendArgs{To: 1, Context: world, Tag: 1, Data: buf}
			in := RecvArgs{From: 0, Context: world, Tag: 1, Buf: buf}
			wild := RecvArgs{From: AnyProc, Context: world, Tag: AnyTag, Buf: buf}
			late := func() {
				for _, a := range []*RecvArgs{&in, &wild} {
					if err := es[0].Send(&out); err != nil {
						t.Error(err)
					}
					if _, err := es[1].Probe(0, world, 1); err != nil {
						t.Error(err)
					}
					if _, err := es[1].Recv(a); err != nil {
						t.Error(err)
					}
				}
			}
			posted := func() {
				for _, a := range []*RecvArgs{&in, &wild} {
					id, err := es[1].Irecv(a)
					if err != nil {
						t.Error(err)
					}
					if err := es[0].Send(&out); err != nil {
						t.Error(err)
					}
					if _, err := es[1].Wait(id); err != nil {
						t.Error(err)
					}
				}
			}
			for range 30000 { // so that what is kept has been allocated: over several links all that is not acknowledged
				late()
				posted()
			}
			// Other goroutines of the process allocate as well, but seldom.
			if n := testing.AllocsPerRun(2000, late); n >= 1 {
				t.Errorf("unexpected messages: %v allocations", n)
			}
			if n := testing.AllocsPerRun(2000, posted); n >= 1 {
				t.Errorf("expected messages: %v allocations", n)
			}
		})
	}
}

// TestSoak sends messages of random sizes among several, many at a time.
func TestSoak(t *testing.T) {
	const procs, rounds = 3, 40
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			es := k.make(t, procs)
			each(es, func(i int, e *Engine) {
				for round := range rounds {
					var in, out []ID
					var bufs, want [][]byte
					for j := range procs {
						// Both sides draw the same for the messages from one to another.
						to := rand.New(rand.NewPCG(uint64(i*procs+j), uint64(round)))
						from := rand.New(rand.NewPCG(uint64(j*procs+i), uint64(round)))
						for m := range 5 {
							out = append(out, isend(t, e, Proc(j), int32(m), pattern(soakSize(to), i+m)))
							want = append(want, pattern(soakSize(from), j+m))
							bufs = append(bufs, make([]byte, len(want[len(want)-1])))
							in = append(in, irecv(t, e, Proc(j), int32(m), bufs[len(bufs)-1]))
						}
					}
					for _, id := range append(in, out...) {
						wait(t, e, id)
					}
					for m := range bufs {
						if !bytes.Equal(bufs[m], want[m]) {
							t.Fatalf("round %d, message %d of %d bytes: other contents", round, m, len(bufs[m]))
						}
					}
				}
			})
		})
	}
}

func soakSize(r *rand.Rand) int { return r.IntN(1 << r.IntN(20)) }
