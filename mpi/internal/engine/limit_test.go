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
