package engine

import (
	"bytes"
	"testing"
)

// TestCloseOwing has an engine close that has yet to connect to whom it sends, who
// connects to it first: the message arrives.
func TestCloseOwing(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			es := k.make(t, 2)
			es[0].Do(func(op *Op) {
				es[0].peers[1].state = connecting // and never gets there
				if _, err := op.Isend(&SendArgs{To: 1, Context: world, Tag: 1, Data: pattern(100, 1)}); err != nil {
					t.Error(err)
				}
			})
			left := make(chan error, 1)
			go func() { left <- es[0].Close(t.Context()) }()
			for closed := false; !closed; {
				es[0].Do(func(*Op) { closed = es[0].closed })
			}
			if got, _ := recv(t, es[1], 0, 1, 100); !bytes.Equal(got, pattern(100, 1)) {
				t.Error("other contents")
			}
			if err := <-left; err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}
