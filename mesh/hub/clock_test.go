package hub

import (
	"bytes"
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

// TestClockWasAhead: a certificate that a hub issued while its clock was ahead does
// not keep its node from the others once the clock is right.
func TestClockWasAhead(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a"), w.member("b")
	w.clock.add(cert.Lifetime/2 + time.Hour)
	w.hub.deciding.Lock()
	chain, fresh, err := w.hub.ledger.renew(b.node.ID, w.clock.now())
	check(t, err)
	w.hub.board.enter(b.node, chain)
	w.hub.deciding.Unlock()
	if !fresh {
		t.Fatal("not renewed")
	}
	w.clock.ahead.Store(0)
	w.stop()
	w.start(w.addr) // with what it has stored
	va, vb := w.connect(a), w.connect(b)
	va.until("b's certificate", func() bool { return va.recs[b.node.ID].Up && bytes.Equal(va.recs[b.node.ID].Chain[0], b.chain[0]) })
	vb.note(func() {
		if len(vb.chains) != 0 {
			t.Error("b was given the one that does not hold")
		}
	})
}

// TestClockWasBehind: a node that starts with a clock that is behind, as one without
// a battery does until NTP has set it, knows everybody once the clock is right.
func TestClockWasBehind(t *testing.T) {
	w := newWorld(t)
	a := w.member("a")
	w.clock.add(26 * time.Hour) // a joined yesterday
	b := w.member("b")          // joins, or renews, today
	v := w.watch(a)
	v.clock.add(time.Hour)
	v.start()
	v.until("a session", func() bool { return v.ups > 0 && v.recs[a.node.ID].Up })
	v.clock.add(25 * time.Hour) // NTP
	v.Client.Recheck()          // rather than wait for the next ping
	v.until("b", func() bool { _, ok := v.recs[b.node.ID]; return ok })
}

// TestClockWentBack: a node whose clock goes back does not cut off peers that it
// talks to, because their certificates are younger, when its session begins anew.
func TestClockWentBack(t *testing.T) {
	w := newWorld(t)
	a := w.member("a")
	w.clock.add(26 * time.Hour)
	b := w.member("b")
	v := w.watch(a)
	v.clock.add(26 * time.Hour)
	v.start()
	v.until("a session", func() bool { return v.ups > 0 })
	v.until("b", func() bool { _, ok := v.recs[b.node.ID]; return ok })
	v.clock.add(-25 * time.Hour)
	addr := w.addr
	w.stop()
	v.until("the hub's end", func() bool { return v.err != nil })
	w.start(addr)
	v.until("the records", func() bool { return v.sets > 1 })
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.recs[b.node.ID]; !ok {
		t.Error("b is taken away because its certificate does not hold yet by a's clock")
	}
}
