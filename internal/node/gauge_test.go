package node

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/mesh/directory"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/sites"
	"github.com/meshmpi/meshmpi/shaper"
	"github.com/meshmpi/meshmpi/shaper/estimate"
	"golang.org/x/sync/errgroup"
)

// unknownUplink is that of site "here", which is to be measured.
type unknownUplink struct{ fixedLimits }

func (unknownUplink) toMeasure(from string) []string {
	if from == "here" {
		return []string{""}
	}
	return nil
}
func (unknownUplink) measures(from, to string) bool { return from == "here" && to != "here" }

// TestGauge: over real sockets a receiving node tells what arrives, and both nodes of
// the sending site know what their uplink carries, which nobody has said.
func TestGauge(t *testing.T) {
	const b = 20 * mbit
	town := shareTown(t, unknownUplink{}, "here", "here", "there")
	stop := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error { // the network: what is sent arrives, as far as it fits
		last := time.Now()
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return nil
			case now := <-tick.C:
				pass(town, int64(now.Sub(last).Seconds()*1e6), b)
				last = now
			}
		}
	})
	defer func() { close(stop); _ = group.Wait() }()
	known := func(n *shareNode) (rate int64) {
		for _, f := range n.gauge.known() {
			if f.to == "" && !f.since.IsZero() {
				rate = f.rate
			}
		}
		return rate
	}
	town[0].active("there")
	eventually.Holds(t, "both nodes know what the uplink carries", func() bool {
		x, y := known(town[0]), known(town[1])
		return x > b*8/10 && x < b*12/10 && y > b*8/10 && y < b*12/10
	})
	eventually.Holds(t, "it is kept", func() bool {
		town[1].mu.Lock()
		defer town[1].mu.Unlock()
		return town[1].saved[""] > 0
	})
}

// pass has the first two nodes send what they may for some microseconds to the third,
// over a line of so many bits per second.
func pass(town []*shareNode, micros, line int64) {
	var sent [2]int64
	for i := range sent {
		town[i].mu.Lock()
		sent[i] = min(town[i].measured[""]/2*micros/8e6, 1<<20)
		x := town[i].passed[peer.ID{3}]
		x.ID, x.Sent, x.RTT = peer.ID{3}, x.Sent+sent[i], time.Millisecond
		town[i].passed[x.ID] = x
		town[i].mu.Unlock()
		town[i].active("there")
	}
	fits := min(1, float64(line*micros/8e6)/float64(max(sent[0]+sent[1], 1)))
	town[2].mu.Lock()
	for i := range sent {
		x := town[2].passed[peer.ID{byte(i + 1)}]
		x.ID, x.Received = peer.ID{byte(i + 1)}, x.Received+int64(float64(sent[i])*fits)
		town[2].passed[x.ID] = x
	}
	town[2].mu.Unlock()
}

// bothWays has what either of two sites sends measured.
type bothWays struct{ fixedLimits }

func (bothWays) measures(from, to string) bool { return from != to }

// TestMeasuredUnderLoad: what is to be measured from now on is, also where a link has
// long been in use and nothing says so.
func TestMeasuredUnderLoad(t *testing.T) {
	a := peer.Node{ID: peer.ID{1}, Site: "here", Addr4: netip.MustParseAddr("127.0.0.1")}
	b := peer.Node{ID: peer.ID{2}, Site: "there", Addr4: netip.MustParseAddr("127.0.0.2")}
	n, _ := gaugeOf(fixedLimits{up: mbit}, a, b)
	if wake := n.gauge.turn(); !wake.IsZero() {
		t.Errorf("with a declared uplink it wakes at %v", wake)
	}
	n.cfg.limits = unknownUplink{}
	n.reload()
	if wake := n.gauge.turn(); wake.IsZero() {
		t.Error("an uplink that is to be measured from now on is not")
	}
}

// sentTo is a socket that keeps what is sent.
type sentTo struct {
	net.PacketConn
	out [][]byte
}

func (c *sentTo) WriteTo(b []byte, _ net.Addr) (int, error) {
	c.out = append(c.out, bytes.Clone(b))
	return len(b), nil
}

// gaugeOf returns the live shares of the first node, which do not run, with members
// and limits taken in.
func gaugeOf(limits shareLimits, nodes ...peer.Node) (*shareNode, *sentTo) {
	dir := &directory.Directory{}
	var recs []peer.Record
	for _, n := range nodes {
		recs = append(recs, peer.Record{Up: true, Node: n})
	}
	dir.Apply(true, recs)
	n, conn := &shareNode{passed: map[peer.ID]peer.Traffic{}}, &sentTo{}
	n.liveShares = newLiveShares(shareConfig{
		self: nodes[0], conn: conn, limits: limits, dir: dir, log: slog.New(slog.DiscardHandler),
		measure: measureConfig{traffic: n.traffic, found: func(map[string]int64) {}, save: func(map[string]int64) {}},
	})
	n.reload()
	return n, conn
}

// TestTalliesEnd: where both sites measure, the tallies after the last byte are not
// themselves told of for ever; while something comes it is told.
func TestTalliesEnd(t *testing.T) {
	a := peer.Node{ID: peer.ID{1}, Site: "a", Addr4: netip.MustParseAddr("127.0.0.1")}
	b := peer.Node{ID: peer.ID{2}, Site: "b", Addr4: netip.MustParseAddr("127.0.0.2")}
	x, xOut := gaugeOf(bothWays{}, a, b)
	y, yOut := gaugeOf(bothWays{}, b, a)
	now := time.Now()
	arrive := func(n *shareNode, from peer.Node, bytes int64) {
		got := n.passed[from.ID]
		got.ID, got.Received = from.ID, got.Received+bytes
		n.passed[from.ID] = got
	}
	// look has a node tell, and what it tells arrive: 108 bytes on the wire each.
	look := func(n *shareNode, self peer.Node, out *sentTo, to *shareNode) int {
		n.gauge.tell(now)
		for _, msg := range out.out {
			arrive(to, self, 108)
			_ = to.gauge.receive(self, msg) // to has sent nothing
		}
		told := len(out.out)
		out.out = nil
		return told
	}
	const rounds = 100
	run := func(data int64) (byX, byY int) {
		for range rounds {
			arrive(y, a, data)
			now = now.Add(estimate.TallyEvery)
			byX += look(x, a, xOut, y)
			byY += look(y, b, yOut, x)
		}
		return byX, byY
	}
	if byX, byY := run(1000); byY != rounds || byX < rounds/answerEvery || byX > rounds/answerEvery+2 {
		t.Errorf("while data come, %d tallies of %d, and %d of the tallies", byY, rounds, byX)
	}
	run(0) // an answer or two
	if byX, byY := run(0); byX+byY > 0 {
		t.Errorf("long after the last byte, %d and %d tallies", byX, byY)
	}
}

// TestLimitsMeasured: what was found takes the place of what is to be measured, also
// after another change, and only as long as it is to be.
func TestLimitsMeasured(t *testing.T) {
	var l limits
	calls := 0
	l.changed = func() { calls++ }
	declared := must(sites.Limits{}.WithSite("alpha", sites.Measured, 0))(t)
	declared.Version = 1
	l.take(declared)
	if up, _ := l.of("alpha"); up != 0 || l.between("alpha", "beta") != 0 {
		t.Errorf("before anything is found the uplink is %d", up)
	}
	l.measured("alpha", map[string]int64{"": 30 * mbit})
	if up, _ := l.of("alpha"); up != 30*mbit || l.between("alpha", "beta") != 30*mbit || l.bandwidth("alpha") != 30*mbit {
		t.Errorf("what was found is %d", up)
	}
	if up, _ := l.all().Of("alpha"); up != 0 || calls != 2 {
		t.Errorf("declared is %d, after %d calls", up, calls)
	}
	more := must(declared.WithSite("beta", 0, 5*mbit))(t)
	more.Version = 2
	l.take(more)
	if up, _ := l.of("alpha"); up != 30*mbit || l.between("alpha", "beta") != 5*mbit {
		t.Errorf("after another change the uplink is %d", up)
	}
	if l.take(sites.Limits{Version: 3}); l.between("alpha", "beta") != 0 {
		t.Error("what is not measured any more is kept to")
	}
}

// TestMeasuredRemembered: what was found is there after a restart; what is no rate is
// not.
func TestMeasuredRemembered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	found(t, dir)
	d := remembering(t, dir)
	if known := d.loadMeasured(); len(known) > 0 {
		t.Errorf("a new node remembers %v", known)
	}
	d.saveMeasured(map[string]int64{"": 30 * mbit, "beta": 3})
	if err := d.saved.Close(); err != nil {
		t.Fatal(err)
	}
	known := remembering(t, dir).loadMeasured()
	if len(known) != 1 || known[""] != 30*mbit {
		t.Errorf("it remembers %v", known)
	}
}

// TestMeasuredMerged: what was found of a link stays while that is not measured.
func TestMeasuredMerged(t *testing.T) {
	g := gauge{saved: map[string]int64{"alpha": 30 * mbit, "beta": 10 * mbit}}
	for _, tc := range []struct {
		found map[string]int64
		news  bool
	}{
		{map[string]int64{"beta": 10*mbit + 1}, false},
		{map[string]int64{"beta": 0}, false},
		{map[string]int64{"beta": 20 * mbit}, true},
		{map[string]int64{"gamma": 5 * mbit}, true},
	} {
		if news := g.remember(tc.found); news != tc.news {
			t.Errorf("%v is news: %v", tc.found, news)
		}
	}
	if want := map[string]int64{"alpha": 30 * mbit, "beta": 20 * mbit, "gamma": 5 * mbit}; !maps.Equal(g.saved, want) {
		t.Errorf("it remembers %v, want %v", g.saved, want)
	}
}

// noticeFrom is the address of who sends notices.
var noticeFrom = [4]byte{100, 80, 0, 2}

// noticePacket is what isNotice looks for.
func noticePacket() []byte {
	pkt := make([]byte, 60)
	pkt[0], pkt[6], pkt[9] = 0x45, 0x40, 17
	copy(pkt[12:], noticeFrom[:])
	binary.BigEndian.PutUint16(pkt[20:], SharesPort)
	binary.BigEndian.PutUint16(pkt[22:], SharesPort)
	return pkt
}

// TestNoticesFirst: of packets that are read together and must wait, the notices do not.
func TestNoticesFirst(t *testing.T) {
	s, err := shaper.New(shaper.Config{Kick: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := s.Link("beta")
	l.SetRate(8000)
	f := noticesFirst{l.Flow(peer.ID{1}, func([][]byte) {}), noticeFrom}
	const offset = 2
	var bufs [][]byte
	var sizes []int
	for i := range 40 {
		pkt := make([]byte, 1200)
		if i%10 == 9 {
			pkt = noticePacket()
		}
		bufs, sizes = append(bufs, append(make([]byte, offset), pkt...)), append(sizes, len(pkt))
	}
	f.Admit(bufs, sizes, offset)
	for i, n := range sizes {
		if notice := i%10 == 9; notice && n != 60 || !notice && i > 10 && n != 0 {
			t.Errorf("packet %d has size %d", i, n)
		}
	}
	if w := l.Demand().Waiting; w < 25*1200 || w > 36*1300 {
		t.Errorf("%d bytes wait, want those of some 30 packets", w)
	}
}

func TestIsNotice(t *testing.T) {
	pkt := noticePacket()
	if !isNotice(pkt, noticeFrom) {
		t.Error("a notice is not known")
	}
	for name, change := range map[string]func(b []byte) []byte{
		"cut":             func(b []byte) []byte { return b[:27] },
		"empty":           func(b []byte) []byte { return nil },
		"too long":        func(b []byte) []byte { return append(b, make([]byte, 1100)...) },
		"TCP":             func(b []byte) []byte { b[9] = 6; return b },
		"IPv6":            func(b []byte) []byte { b[0] = 0x60; return b },
		"options":         func(b []byte) []byte { b[0] = 0x46; return b },
		"a fragment":      func(b []byte) []byte { b[7] = 1; return b },
		"a first one":     func(b []byte) []byte { b[6] = 0x20; return b },
		"from a program":  func(b []byte) []byte { b[21]++; return b },
		"from elsewhere":  func(b []byte) []byte { b[15]++; return b },
		"to another port": func(b []byte) []byte { b[23]++; return b },
	} {
		if isNotice(change(append([]byte(nil), pkt...)), noticeFrom) {
			t.Errorf("%s counts as a notice", name)
		}
	}
}
