package engine

import (
	"context"
	"errors"
	"testing"
)

// TestLimit: who asks for more requests than there may be is told, and may ask again when
// one has ended.
func TestLimit(t *testing.T) {
	e, err := New(Config{Hub: NewHub(), MostRequests: 8})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	var last ID
	n := 0
	for ; n < 1<<16; n++ {
		id, err := e.General()
		if errors.Is(err, ErrLimit) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = id
	}
	if n < 8 || n == 1<<16 {
		t.Errorf("%d requests at one time where 8 were allowed", n)
	}
	e.Do(func(op *Op) { op.Complete(last, Status{}, nil) })
	if _, err := e.Wait(last); err != nil {
		t.Error(err)
	}
	if _, err := e.General(); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// TestManyClosed: contexts of ours that are closed, with a receive under way or refusing
// what comes, do not count as such that a peer has made up.
func TestManyClosed(t *testing.T) {
	es := newWorld(t, 2)
	const many = Context(strangeMost + 10)
	for c := world + 1; c <= many; c++ {
		es[0].OpenContext(c, []Proc{0, 1})
		if _, err := es[0].Irecv(&RecvArgs{From: 1, Context: c, Buf: make([]byte, 1)}); err != nil {
			t.Fatal(err)
		}
		if es[0].CloseContext(c) {
			t.Fatal("the context of a receive under way is idle")
		}
		es[0].RefuseContext(many + c)
	}
	const next = 2*many + 1
	es[1].OpenContext(next, []Proc{0, 1})
	if err := es[1].Send(&SendArgs{To: 0, Context: next, Tag: 1}); err != nil {
		t.Fatal(err)
	}
	send(t, es[1], 0, 1, nil)
	recv(t, es[0], 1, 1, 0) // so the other has come as well
	es[0].OpenContext(next, []Proc{0, 1})
	if _, err := es[0].Recv(&RecvArgs{From: 1, Context: next, Tag: 1}); err != nil {
		t.Error(err)
	}
	es[0].Do(func(op *Op) {
		if n := op.e.strange; n != 0 {
			t.Errorf("%d contexts that only peers have named, want none", n)
		}
	})
}
