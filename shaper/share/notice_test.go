package share

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestNoticeOnTheWire(t *testing.T) {
	n := notice{kind: kindSite, answer: true, members: 4, lease: 200, seq: 0x0102, echo: 0x0304, entries: []entry{
		{pool: 0xa1b2c3d4, kind: entryHungry, weight: 3, a: 100 * mbit, b: 25 * mbit},
	}}
	const want = "1101" + "0004" + "00c8" + "0001" + "0000000000000102" + "0000000000000304" + "a1b2c3d4" + "01" + "03" + "000186a0" + "000061a8"
	b := n.append(nil)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, err := parseNotice(b)
	if err != nil || back.seq != n.seq || back.echo != n.echo || !back.answer || back.ack || !slices.Equal(back.entries, n.entries) {
		t.Errorf("back came %+v, %v", back, err)
	}
}

func TestNoticesRefused(t *testing.T) {
	good := (&notice{kind: kindSite, lease: 200, seq: 1, entries: make([]entry, 2)}).append(nil)
	for name, b := range map[string][]byte{
		"empty":           nil,
		"short":           good[:20],
		"cut":             good[:len(good)-1],
		"longer":          append(slices.Clone(good), 0),
		"unknown version": append([]byte{0x21}, good[1:]...),
		"longest":         make([]byte, MaxNotice+1),
		"a cap":           append([]byte{kindCap}, good[1:]...),
	} {
		m := New(nodeID(0), Config{})
		m.Members(0, []peer.ID{nodeID(1)})
		if err := m.Receive(0, nodeID(1), b); err == nil || m.Counters().Refused != 1 {
			t.Errorf("%s: %v, %+v", name, err, m.Counters())
		}
	}
	m := New(nodeID(0), Config{})
	if err := m.Receive(0, nodeID(1), good); !errors.Is(err, ErrStranger) {
		t.Errorf("from a stranger: %v", err)
	}
}

// FuzzNotice feeds a machine what anybody may send; its promises must stay within
// its share.
func FuzzNotice(f *testing.F) {
	name := PoolName("b")
	f.Add((&notice{kind: kindSite, answer: true, members: 3, lease: 200, seq: 9, echo: 1, entries: []entry{{name, entryHungry, 1, 100 * mbit, 25 * mbit}}}).append(nil), byte(5))
	f.Add((&notice{kind: kindSite, members: 3, lease: 65535, seq: 9, echo: 5000, entries: []entry{{name, entryLender, 1, 1 << 40, 1 << 40}}}).append(nil), byte(200))
	f.Add((&notice{kind: kindCap, lease: 1500, seq: 9, entries: []entry{{0, entryCap, 0, mbit, 0}}}).append(nil), byte(1))
	f.Fuzz(func(t *testing.T, data []byte, later byte) {
		if n, err := parseNotice(data); err == nil && !bytes.Equal(n.append(nil)[2:], data[2:]) {
			t.Fatalf("read %x, wrote %x", data, n.append(nil))
		}
		m := New(nodeID(0), Config{})
		m.Members(0, []peer.ID{nodeID(1), nodeID(2)})
		m.Capacity(0, "b", 90*mbit)
		m.Downlink(0, 50*mbit)
		for i, at := range []time.Duration{ms, 2 * ms, (2 + time.Duration(later)) * ms} {
			_ = m.Receive(at, nodeID(1), data)
			_ = m.Capped(at, nodeID(9), "b", data)
			if i == 1 {
				m.Demand(at, "b", 90*mbit, 1)
			}
			out, wake := m.Step(at)
			if len(out) > 8 || wake != 0 && wake <= at {
				t.Fatalf("%d notices, wake %v", len(out), wake)
			}
			for _, s := range m.Explain() {
				if s.Rate <= 0 || s.Rate > 90*mbit || s.Lent > s.Capacity || s.Lent < 0 || s.Leased < 0 {
					t.Fatalf("%+v", s)
				}
			}
		}
	})
}
