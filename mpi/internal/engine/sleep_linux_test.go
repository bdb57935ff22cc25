package engine

import (
	"runtime"
	"testing"
	"time"
)

// TestOneProcessor: while a process sleeps for a message, its timers and its other
// goroutines go on, on its only processor. They send the message here.
func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			es := kind.make(t, 2)
			for i := range int32(20) {
				time.AfterFunc(time.Duration(i)*time.Millisecond, func() { send(t, es[1], 0, i, []byte{byte(i)}) })
				if got, _ := recv(t, es[0], 1, i, 1); got[0] != byte(i) {
					t.Errorf("message %d is %d", i, got[0])
				}
			}
		})
	}
}

// TestSleep: a doorbell ends a sleep, of the driver also before it has begun; that of
// the driver wakes the helper too, but not the other way round. Sleeping allocates
// nothing and leaves the only processor to others. While nobody sleeps nothing is told.
func TestSleep(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b := &epoll{fd: -1, bell: -1, kickBell: -1}
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	defer b.close()
	awake := make(chan string, 2)
	sleep := func(name string, helper bool) { go func() { b.wait(helper); awake <- name }() }
	sleep("driver", false)
	sleep("helper", true)
	time.Sleep(10 * time.Millisecond) // or they find the bell rung, which is right as well
	b.kick()
	if got := <-awake; got != "helper" {
		t.Fatalf("the helper's doorbell woke the %s", got)
	}
	select {
	case got := <-awake:
		t.Fatalf("the helper's doorbell woke the %s as well", got)
	case <-time.After(10 * time.Millisecond):
	}
	b.ring()
	if got := <-awake; got != "driver" {
		t.Fatalf("the driver's doorbell woke the %s", got)
	}
	sleep("helper", true)
	b.ring()
	if got := <-awake; got != "helper" {
		t.Fatalf("the driver's doorbell woke the %s", got)
	}
	b.ring()
	if b.driver.has(uintptr(b.driver.fd)) || b.helper.has(uintptr(b.helper.fd)) {
		t.Error("what the driver polls wakes Go's scheduler while nobody sleeps")
	}
	if n := testing.AllocsPerRun(100, func() { b.ring(); b.wait(false) }); n != 0 {
		t.Errorf("a sleep allocates %v times", n)
	}
}

// TestWatch: who keeps watch does not sleep, unless processes share a processor; but
// where something has come after a while it sleeps like everybody.
func TestWatch(t *testing.T) {
	const long = time.Hour
	for _, x := range []struct {
		name    string
		watch   time.Duration
		adapt   func(*Engine)
		message bool // comes that it does not wait for
		sleeps  bool
	}{
		{name: "none", sleeps: true},
		{name: "short", watch: 5 * time.Millisecond, sleeps: true},
		{name: "long", watch: long},
		{name: "crowded", watch: long, adapt: (*Engine).crowd, sleeps: true},
		{name: "rewarded", watch: long, message: true, sleeps: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			es := processes()(t, 2)
			send(t, es[1], 0, 1, []byte{1}) // so that there is a link
			recv(t, es[0], 1, 1, 1)
			if x.adapt != nil {
				es[0].gate.lock()
				x.adapt(es[0])
				es[0].gate.unlock()
			}
			id, err := es[0].General()
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error)
			go func() {
				_, err := es[0].WaitAwake(id, x.watch)
				ended <- err
			}()
			var meanwhile func()
			if x.message {
				meanwhile = func() { send(t, es[1], 0, 2, []byte{2}) }
			}
			if got := fallsAsleep(es[0], x.sleeps, meanwhile); got != x.sleeps {
				t.Errorf("it sleeps: %v, want %v", got, x.sleeps)
			}
			es[0].Do(func(op *Op) { op.Complete(id, Status{}, nil) })
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// fallsAsleep reports whether the driver sleeps within a time: a long one where it is to.
// Now and then something happens meanwhile, the first time after a while that counts as a
// watch. After that, it yields for a while before it sleeps.
func fallsAsleep(e *Engine, likely bool, meanwhile func()) bool {
	within := 50 * time.Millisecond
	if likely {
		within = 10 * time.Second
	}
	for i, end := 0, time.Now().Add(within); time.Now().Before(end); i++ {
		e.gate.lock()
		asleep := e.driver != nil && e.driver != &e.helper && e.driver.asleep
		e.gate.unlock()
		if asleep {
			return true
		}
		time.Sleep(time.Millisecond)
		if meanwhile != nil && i%100 == 5 {
			meanwhile()
		}
	}
	return false
}
