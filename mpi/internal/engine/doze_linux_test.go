package engine

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// TestOneProcessor: while a process sleeps for a message, and has not told Go's
// scheduler, its timers and its other goroutines go on, on its only processor. They
// send the message here.
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

// TestDozeEnds: it is for a while only, and a doorbell ends it.
func TestDozeEnds(t *testing.T) {
	var b epoll
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	defer b.closeAll()
	// A signal ends it as a doorbell does, and so do goroutines that have something to do.
	doze := func() bool { return b.doze(new(unix.EpollEvent)) }
	eventually.Holds(t, "it ends by itself", func() bool { return !doze() })
	b.ring()
	eventually.Holds(t, "a doorbell ends it", doze)
}
