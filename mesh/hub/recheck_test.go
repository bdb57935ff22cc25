package hub

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestRecheckWhileBusy: that the network has changed is not forgotten by a reader that
// is just busy with what the hub said before.
func TestRecheckWhileBusy(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	busy, done, pings := make(chan struct{}), make(chan struct{}), make(chan struct{}, 8)
	addr := listen(t, func(c net.Conn) {
		conn := tls.Server(c, cert.TLSConfig(w.keys, *w.chain.Load(), w.network.Root, time.Now, alpnControl))
		_ = writeMessage(conn, message{Type: typeSignal, Peer: &peer.ID{1}})
		for {
			m, err := readMessage(conn, maxNodeFrame)
			if err != nil {
				return
			}
			if m.Type == typePing { // which it does not answer
				select {
				case pings <- struct{}{}:
				default:
				}
			}
		}
	})
	v := w.watch(w.member("b"), addr)
	v.Client.cfg.Events.Signal = func(peer.ID, []byte) {
		once.Do(func() { close(busy) })
		<-done
	}
	v.start()
	<-busy
	<-pings // the first of every session
	v.Client.Recheck()
	<-pings // by now the hub has little time
	close(done)
	v.until("the end of the session", func() bool { return v.err != nil })
	oneLine(t, v.err)
}
