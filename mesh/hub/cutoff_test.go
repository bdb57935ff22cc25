package hub

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// removing is a relay of a hub whose administrator removes every node that it admits.
type removing struct {
	Relay
	remove func(peer.ID)
}

func (r *removing) Admit(id peer.ID, until time.Time) (json.RawMessage, error) {
	r.remove(id)
	return r.Relay.Admit(id, until)
}

// TestRemovedWhileConnecting removes a node after the hub has let it in and before
// it has compared their certificates: the session ends and the hub goes on.
func TestRemovedWhileConnecting(t *testing.T) {
	w := newWorld(t)
	b := w.member("b")
	w.hub.cfg.Relay = &removing{w.relay, func(id peer.ID) {
		if id == b.node.ID {
			check(t, w.hub.RemoveNode("b"))
		}
	}}
	conn := w.dial(b)
	check(t, writeMessage(conn, message{Type: typeAnnounce}))
	var err error
	for err == nil {
		_, err = readMessage(conn, maxControlFrame)
	}
	if w.hub.board.session(b.node.ID) != nil || w.relay.has(b.node.ID) {
		t.Error("a node that was removed takes part")
	}
	w.connect(w.member("a"))
}

// TestCopiedState: where two machines have the keys of one node, each is told of the
// other, and what helps.
func TestCopiedState(t *testing.T) {
	w := newWorld(t)
	b := w.member("b")
	v := w.connect(b)
	copied := w.dial(b)
	check(t, writeMessage(copied, message{Type: typeAnnounce}))
	v.until("the reason", func() bool {
		return v.err != nil && strings.Contains(v.err.Error(), "from 127.0.0.1,") && strings.Contains(v.err.Error(), "new token")
	})
	oneLine(t, v.err)
}
