package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if playRole() { // this is the other process of a test
		return
	}
	goleak.VerifyTestMain(m)
}

const world = Context(0)

// newWorld makes n engines of one hub, started, with a context of all.
func newWorld(t testing.TB, n int, adapt ...func(*Config)) []*Engine {
	t.Helper()
	hub := NewHub()
	es := make([]*Engine, n)
	members := make([]Proc, n)
	for i := range es {
		members[i] = Proc(i)
		cfg := Config{Self: Proc(i), Size: n, Hub: hub}
		for _, f := range adapt {
			f(&cfg)
		}
		var err error
		if es[i], err = New(cfg); err != nil {
			t.Fatal(err)
		}
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

// closeAll closes engines at the same time, as a job does.
func closeAll(t testing.TB, es []*Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, e := range es {
		wg.Go(func() {
			if err := e.Close(ctx); err != nil && err != ErrClosed {
				t.Errorf("close of %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// each runs a body for each engine at the same time.
func each(es []*Engine, body func(i int, e *Engine)) {
	var wg sync.WaitGroup
	for i, e := range es {
		wg.Go(func() { body(i, e) })
	}
	wg.Wait()
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed + i>>8)
	}
	return b
}

// testRelieved: who is woken to drive when it has just got what it waited for passes the
// role on, and does not leave others to wait for nobody.
func testRelieved(t *testing.T, newWorld maker) {
	es := newWorld(t, 2)
	for i := range int32(5) {
		first, self, other := 10*i, 10*i+1, 10*i+2
		quiet := func() { time.Sleep(2 * helperTick) } // until they wait, and at last the helper rests
		var left, waits sync.WaitGroup
		left.Go(func() {
			recv(t, es[0], 1, first, 1) // as the driver
			send(t, es[0], 0, self, []byte{1})
		})
		quiet()
		waits.Go(func() { recv(t, es[0], 1, other, 1) })
		quiet()
		left.Go(func() { recv(t, es[0], 0, self, 1) })
		quiet()
		quiet()
		send(t, es[1], 0, first, []byte{1})
		left.Wait()
		quiet()
		send(t, es[1], 0, other, []byte{1})
		done := make(chan struct{})
		go func() { waits.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			es[0].Poll()
			<-done
			t.Fatalf("round %d: nobody looks for a message that one waits for", i)
		}
	}
}
