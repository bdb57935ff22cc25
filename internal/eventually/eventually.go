// Package eventually lets tests wait for what other processes, the kernel or other
// goroutines do in their own time, where nothing tells that it is done. It exists so
// that all of them are equally patient: a machine may be busy with many tests.
//
// It is the last resort. A channel, a context or testing/synctest waits for no longer
// than it takes, and does not look again and again.
package eventually

import (
	"testing"
	"time"
)

const (
	patience = 30 * time.Second
	shortest = time.Millisecond // between looks, at first
	longest  = 16 * time.Millisecond
)

// Holds returns when holds does, and stops the test if that does not come within half
// a minute. What says, in words, what should have come. It must be called by the
// test's own goroutine, as t.Fatal must.
func Holds(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := shortest
	for began := time.Now(); !holds(); pause = min(2*pause, longest) {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(pause)
	}
}
