package hub

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
)

// stuck is a node whose writer waits, with its first message, for a hub that greets it
// and reads nothing. What the hub says besides comes from say. There is no second session.
func stuck(t *testing.T, say <-chan []byte) *watcher {
	w := newWorld(t)
	v := w.watch(w.member("b"))
	var dials atomic.Int32
	v.Client.cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		near, far := net.Pipe()
		go func() { // ends with say
			conn := tls.Server(far, cert.TLSConfig(w.keys, *w.chain.Load(), w.network.Root, time.Now, alpnControl))
			err := writeMessage(conn, message{Type: typeHello})
			for b := range say {
				if err == nil {
					_, err = conn.Write(b)
				}
			}
		}()
		return near, nil
	}
	v.start()
	v.until("a session", func() bool { return v.ups > 0 })
	return v
}

// TestStuckWriter: a node whose writer waits for the hub gives the session up as soon as
// its reader does, asks at once whether it works when the network changes, and says what
// is wrong when neither ends it.
func TestStuckWriter(t *testing.T) {
	for _, tc := range []struct {
		name   string
		act    func(v *watcher, say chan<- []byte)
		within time.Duration
		want   string
	}{
		{"the reader ends", func(_ *watcher, say chan<- []byte) { say <- []byte{255, 255, 255, 255} }, writeTime / 2, "longer than"},
		{"the network changes", func(v *watcher, _ chan<- []byte) { v.Client.Recheck() }, 2 * recheckTime, "silent"},
		{"nothing happens", func(*watcher, chan<- []byte) {}, writeTime + 2*leaveTime, "takes nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			say := make(chan []byte)
			defer close(say)
			v := stuck(t, say)
			began := time.Now()
			tc.act(v, say)
			for late := time.After(tc.within); ; {
				v.mu.Lock()
				err := v.err
				v.mu.Unlock()
				if err != nil {
					if oneLine(t, err); !strings.Contains(err.Error(), tc.want) {
						t.Errorf("after %v: %v", time.Since(began), err)
					}
					return
				}
				select {
				case <-v.news:
				case <-late:
					t.Fatalf("still up after %v", tc.within)
				}
			}
		})
	}
}
