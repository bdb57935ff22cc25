package engine

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	if b.doze(new(unix.EpollEvent)) {
		t.Error("something came")
	}
	b.ring()
	for !b.doze(new(unix.EpollEvent)) { // other goroutines had something to do
	}
}
