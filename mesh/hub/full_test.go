package hub

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestFullNetwork: a hub admits no node of which the others would not hear any more, and
// says what helps. Those that it knows, and those that take a removed one's place, may come.
func TestFullNetwork(t *testing.T) {
	w := newNetwork(t, "100.64.0.0/10")
	w.start("127.0.0.1:0")
	defer w.stop()
	known, leaving := w.member("known"), w.member("leaving")
	w.hub.board.mu.Lock()
	for n := len(w.hub.board.records); n < maxRecords; n++ {
		var id peer.ID
		binary.BigEndian.PutUint32(id[:], uint32(n))
		w.hub.board.records[id] = record{ID: id}
	}
	w.hub.board.mu.Unlock()
	tok := w.token(9)
	_, err := w.join(tok, "new")
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "meshctl node remove") {
		t.Errorf("one node too many: %v", err)
	}
	oneLine(t, err)
	_, err = w.joinWith(tok, "known", known.keys)
	check(t, err)
	check(t, w.hub.RemoveNode(leaving.node.Name))
	_, err = w.join(tok, "new")
	check(t, err)
}

// TestRevokedLongAgo: a node that was revoked so long ago that no certificate of it can
// be left takes no place on the board of a hub that starts.
func TestRevokedLongAgo(t *testing.T) {
	w := newWorld(t)
	b := w.member("b")
	check(t, w.hub.RevokeNode("b"))
	for days, want := range map[int]bool{1: true, 40: false} {
		cfg := w.hub.cfg
		cfg.Now = func() time.Time { return time.Now().AddDate(0, 0, days) }
		h, err := New(cfg)
		check(t, err)
		if _, told := h.board.record(b.node.ID); told != want {
			t.Errorf("after %d days it is told of: %v", days, told)
		}
		if h.ledger.good(b.node.ID) == nil {
			t.Errorf("after %d days it may come back", days)
		}
	}
}
