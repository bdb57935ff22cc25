package engine

import (
	"bytes"
	"testing"
)

// testFlood sends more than there is credit for to somebody who does not look.
func testFlood(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	const n = 20_000
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = isend(t, es[0], 1, int32(i), pattern(100, i))
	}
	if _, err := es[1].Probe(0, world, 0); err != nil {
		t.Fatal(err)
	}
	es[1].Do(func(op *Op) {
		for _, c := range es[1].peers[0].conns {
			if h, g := c.held, c.granted; h.bytes > g.bytes || h.messages > g.messages {
				t.Errorf("%+v wait for a receive", h)
			}
		}
	})
	for i := range ids {
		if got, _ := recv(t, es[1], 0, int32(i), 100); !bytes.Equal(got, pattern(100, i)) {
			t.Fatalf("message %d: other contents", i)
		}
	}
	for _, id := range ids {
		wait(t, es[0], id)
	}
}

// testReverse receives last first what is more than there is credit for.
func testReverse(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	const n = 10_000
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = isend(t, es[0], 1, int32(i), pattern(100, i))
	}
	for i := n - 1; i >= 0; i -= 333 {
		if got, _ := recv(t, es[1], 0, int32(i), 100); !bytes.Equal(got, pattern(100, i)) {
			t.Fatalf("message %d: other contents", i)
		}
	}
	for i := range ids { // what nobody has asked for yet
		if (n-1-i)%333 != 0 {
			recv(t, es[1], AnyProc, int32(i), 100)
		}
		wait(t, es[0], ids[i])
	}
}
