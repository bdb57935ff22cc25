package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Who closes without time to do so is dead to the others: it does not say goodbye.
func TestNoGoodbye(t *testing.T) {
	h := NewHub()
	var es [2]*Engine
	for i := range es {
		e, err := New(Config{Self: Proc(i), Size: 2, Hub: h})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		e.OpenContext(0, []Proc{0, 1})
		es[i] = e
	}
	if err := es[0].Send(&SendArgs{To: 1, Context: 0, Tag: 1, Data: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := es[1].Recv(&RecvArgs{From: 0, Context: 0, Tag: 1, Buf: make([]byte, 1)}); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = es[0].Close(over)
	for end := time.Now().Add(2 * time.Second); es[1].Gone(0) == nil && time.Now().Before(end); {
		es[1].Poll()
	}
	if err := es[1].Gone(0); errors.Is(es[1].peers[0].err, errGoodbye) || es[1].Failed(0) == nil {
		t.Errorf("who has died is gone: %v; and has failed: %v", err, es[1].Failed(0))
	}
	_ = es[1].Close(context.Background())
}
