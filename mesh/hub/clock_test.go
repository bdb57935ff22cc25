package hub

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
)

// TestClockSetRight: what a node says of a hub's clock follows that clock while the
// session goes on.
func TestClockSetRight(t *testing.T) {
	w := newWorld(t)
	say := make(chan message)
	addr := listen(t, func(c net.Conn) {
		conn := tls.Server(c, cert.TLSConfig(w.keys, *w.chain.Load(), w.network.Root, time.Now, alpnControl))
		for m := range say {
			_ = writeMessage(conn, m)
		}
	})
	defer close(say)
	v := w.watch(w.member("b"), addr)
	v.start()
	defer v.leave()
	wrong := func() bool { return errors.Is(v.err, ErrClock) }
	right := func() bool { return v.ups > 0 && v.err == nil }
	say <- message{Type: typeHello, Time: time.Now().Add(time.Hour)}
	v.until("a word on the hub's clock", wrong)
	say <- message{Type: typePing, Time: time.Now()}
	v.until("that the clock is right", right)
	say <- message{Type: typePing, Time: time.Now().Add(-time.Hour)}
	v.until("a word on a clock that went wrong later", wrong)
}
