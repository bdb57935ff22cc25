package mesh

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// stubPacer paces what goes to site "far": while it holds, until it is let go.
type stubPacer struct {
	mu    sync.Mutex // guards all that follows, of its flows too
	kick  func()
	holds bool
	held  []heldPacket
	flows []*stubFlow
}

type heldPacket struct {
	of  *stubFlow
	pkt []byte
}

type stubFlow struct {
	p        *stubPacer
	send     func([][]byte)
	admitted int // asked about
	sent     int
	overhead int
	closed   bool
}

func (p *stubPacer) Flow(n peer.Node, send func([][]byte)) peer.Flow {
	if n.Site != "far" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &stubFlow{p: p, send: send}
	p.flows = append(p.flows, f)
	return f
}

func (p *stubPacer) OnKick(kick func()) { p.kick = kick }

func (p *stubPacer) Take(bufs [][]byte, sizes []int, offset int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds {
		return 0
	}
	n := min(len(bufs), len(p.held))
	for i, h := range p.held[:n] {
		sizes[i] = copy(bufs[i][offset:], h.pkt)
	}
	p.held = p.held[n:]
	return n
}

// hold has packets wait; letGo hands them out.
func (p *stubPacer) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = true
}

func (p *stubPacer) letGo() {
	p.mu.Lock()
	p.holds = false
	p.mu.Unlock()
	p.kick()
}

// waiting returns how many packets wait.
func (p *stubPacer) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// only returns the state of the one flow that there is.
func (p *stubPacer) only(t *testing.T) stubFlow {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flows) != 1 {
		t.Fatalf("there are %d flows, want 1", len(p.flows))
	}
	return *p.flows[0]
}

func (f *stubFlow) Admit(bufs [][]byte, sizes []int, offset int) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.admitted += len(bufs)
	for i, b := range bufs {
		if f.p.holds {
			f.p.held = append(f.p.held, heldPacket{f, slices.Clone(b[offset : offset+sizes[i]])})
			sizes[i] = 0
		}
	}
}

func (f *stubFlow) Send(pkts [][]byte) {
	f.p.mu.Lock()
	f.sent += len(pkts)
	closed := f.closed
	f.p.mu.Unlock()
	if !closed {
		f.send(pkts)
	}
}

func (f *stubFlow) SetOverhead(bytes int) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.overhead = bytes
}

func (f *stubFlow) Close() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.closed = true
	f.p.held = slices.DeleteFunc(f.p.held, func(h heldPacket) bool { return h.of == f })
}

// batchTUN hands over several packets at a time.
type batchTUN struct {
	*pipeTUN
	batches chan [][]byte
}

func (b *batchTUN) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case batch := <-b.batches:
		for i, pkt := range batch {
			sizes[i] = copy(bufs[i][offset:], pkt)
		}
		return len(batch), nil
	case <-b.interrupt:
		return 0, nil
	}
}

// TestFirstUsePaces: of a batch, what the pacer keeps has no size, the rest passes
// as it is; what was kept comes again when the pacer says so, all of it, in order,
// also where it is more than the reader's buffers.
func TestFirstUsePaces(t *testing.T) {
	own, far, near := netip.MustParseAddr("100.80.0.1"), netip.MustParseAddr("100.80.0.2"), netip.MustParseAddr("100.80.0.3")
	p := &stubPacer{}
	dev := &batchTUN{newPipeTUN(), make(chan [][]byte, 8)}
	f := newFirstUse(dev, &Mesh{cfg: Config{Pacer: p}})
	defer dev.Close()
	f.know([]netip.Addr{far}, &Endpoint{flow: p.Flow(peer.Node{Site: "far"}, func([][]byte) {})})
	f.know([]netip.Addr{near}, &Endpoint{})
	const offset = 16
	bufs, sizes := make([][]byte, 4), make([]int, 4)
	for i := range bufs {
		bufs[i] = make([]byte, offset+100)
	}
	want := func(what string, payloads ...string) {
		t.Helper()
		var got []string
		n, err := f.Read(bufs, sizes, offset)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			text := "" // kept
			if pkt := bufs[i][offset : offset+sizes[i]]; len(pkt) > 0 {
				text = string(pkt[min(20, len(pkt)-1):])
			}
			got = append(got, text)
		}
		if !slices.Equal(got, payloads) {
			t.Errorf("%s: %q, want %q", what, got, payloads)
		}
	}
	batch := func(packets ...[]byte) { dev.batches <- packets }

	batch(packet(own, far, "a"), packet(own, near, "b"))
	want("the pacer lets pass", "a", "b")
	p.hold()
	batch(packet(own, far, "1"), packet(own, near, "c"), packet(own, far, "2"), packet(own, far, "3"))
	want("it keeps", "", "c", "", "")
	batch(packet(own, far, "4"), []byte("no IP"), packet(own, far, "5"))
	want("what is no IP is nobody's to keep", "", "P", "")
	p.kick()
	batch(packet(own, near, "d"))
	want("it has nothing yet", "d")
	p.letGo()
	want("its time has come", "1", "2", "3", "4")
	want("there was more", "5")
	batch(packet(own, near, "e"))
	want("that was all", "e")

	p.hold()
	batch(packet(own, far, "6"))
	want("it keeps again", "")
	f.know([]netip.Addr{far}, &Endpoint{}) // as when its limit and it have gone
	p.flows[0].Close()
	p.letGo()
	batch(packet(own, far, "7"))
	want("after Close what waited is gone", "7")
	if n := p.only(t).admitted; n != 7 {
		t.Errorf("a flow was asked about %d packets, want 7: none after Close", n)
	}
}

// TestKickWakesReader: a reader that waits for the host returns with what the pacer
// has.
func TestKickWakesReader(t *testing.T) {
	p := &stubPacer{holds: true}
	dev := newPipeTUN()
	f := newFirstUse(dev, &Mesh{cfg: Config{Pacer: p}})
	defer dev.Close()
	flow := p.Flow(peer.Node{Site: "far"}, nil)
	bufs, sizes := [][]byte{make([]byte, 100)}, []int{0}
	for range 100 {
		p.hold()
		flow.Admit([][]byte{[]byte("waits")}, []int{5}, 0)
		got := make(chan string)
		go func() {
			n, err := f.Read(bufs, sizes, 0)
			if n != 1 || err != nil {
				t.Errorf("read %d, %v", n, err)
			}
			got <- string(bufs[0][:sizes[0]])
		}()
		p.letGo()
		if text := <-got; text != "waits" {
			t.Errorf("it reads %q", text)
		}
	}
}

// TestPaced: packets to another site pass the pacer before and after they are
// sealed; what waits arrives later, in order; nothing is sent for a peer that has
// been cut off.
func TestPaced(t *testing.T) {
	na, ka := newIdentity(t, "a", 1)
	nb, kb := newIdentity(t, "b", 2)
	nb.Site = "far"
	p := &stubPacer{}
	a, b := start(t, na, ka, 0, func(c *Config) { c.Pacer = p }), start(t, nb, kb, 0, func(c *Config) { c.Pacer = &stubPacer{} })
	a.knows(peer.Record{Node: nb, Up: true, Advertise: b.addr().String()})
	b.knows(peer.Record{Node: na, Up: true})
	send := func(payload string) { a.tun.out <- packet(na.Addr4, nb.Addr4, payload) }
	send("at once")
	b.arrives(t, "at once", arrival)
	if f := p.only(t); f.admitted != 1 || f.sent == 0 || f.overhead != peer.OverheadIPv4 {
		t.Errorf("the flow was asked %d times, was given %d datagrams and has an overhead of %d, want %d", f.admitted, f.sent, f.overhead, peer.OverheadIPv4)
	}
	p.hold()
	later := []string{"1", "2", "3", "4", "5", "6", "7"}
	for _, payload := range later {
		send(payload)
	}
	eventually.Holds(t, "the packets wait", func() bool { return p.waiting() == len(later) })
	p.letGo()
	for _, want := range later {
		select {
		case pkt := <-b.tun.in:
			if string(pkt[20:]) != want {
				t.Fatalf("%q arrives, want %q", pkt[20:], want)
			}
		case <-time.After(arrival):
			t.Fatalf("%q does not arrive", want)
		}
	}
	b.Traffic(func(x peer.Traffic) { t.Errorf("b tells of %+v, whose site is none it paces", x) })
	b.tun.out <- packet(nb.Addr4, na.Addr4, "back")
	a.arrives(t, "back", arrival)
	a.Traffic(func(x peer.Traffic) {
		if x.ID != nb.ID || x.Received != wireSize(20+len("back"), 1400) || x.Sent < 8*wireSize(20+1, 1400) || x.RTT <= 0 {
			t.Errorf("a tells of %+v", x)
		}
	})
	back, ahead := (*b.Mesh.tun.known.Load())[na.Addr4], (*a.Mesh.tun.known.Load())[nb.Addr4]
	for _, n := range []int{1400, 1399, 1392, 1391, 100} { // of the TUN's 1400
		sent, came := back.txWire(), ahead.rxWire.Load()
		payload := strings.Repeat("x", n-20)
		b.tun.out <- packet(nb.Addr4, na.Addr4, payload)
		a.arrives(t, payload, arrival)
		if got, want := ahead.rxWire.Load()-came, back.txWire()-sent; got != want {
			t.Errorf("of a packet of %d bytes a counts %d on the wire, b %d", n, got, want)
		}
	}

	p.hold()
	send("too late")
	eventually.Holds(t, "a packet waits", func() bool { return p.waiting() == 1 })
	a.knows(peer.Record{Node: nb, Revoked: true})
	eventually.Holds(t, "the flow is closed", func() bool { return p.only(t).closed })
	was := p.only(t)
	p.letGo()
	send("much too late")
	eventually.Holds(t, "the packet is nobody's", func() bool { return a.Stats().NoOwner == 1 })
	if now := p.only(t); now.admitted != was.admitted || now.sent != was.sent || p.waiting() != 0 {
		t.Errorf("after Close the flow went from %+v to %+v; %d wait", was, now, p.waiting())
	}
}

func TestOverhead(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("[2001:db8::1]:1")
	for _, tc := range []struct {
		info peer.PathInfo
		want int
	}{
		{peer.PathInfo{Kind: peer.KindUDP, Remote: v4}, 42},
		{peer.PathInfo{Kind: peer.KindUDP, Remote: netip.AddrPortFrom(netip.AddrFrom16(v4.Addr().As16()), 1)}, 42},
		{peer.PathInfo{Kind: peer.KindUDP, Remote: v6}, 62},
		{peer.PathInfo{Kind: peer.KindRelayUDP, Remote: v4}, 42 + wire.RelayHeaderLen},
		{peer.PathInfo{Kind: peer.KindRelayUDP, Remote: v6}, 62 + wire.RelayHeaderLen},
	} {
		if got := overhead(tc.info); got != tc.want {
			t.Errorf("overhead(%+v) = %d, want %d", tc.info, got, tc.want)
		}
	}
}

// TestRunsAreAdmitted: what is read together goes to each flow in runs, in order, and
// what has no flow passes.
func TestRunsAreAdmitted(t *testing.T) {
	p := &stubPacer{holds: true}
	dev := newPipeTUN()
	f := newFirstUse(dev, &Mesh{cfg: Config{Pacer: p}})
	defer dev.Close()
	here := netip.MustParseAddr("100.80.0.1")
	var to []netip.Addr
	for i := range 3 {
		a, ep := netip.AddrFrom4([4]byte{100, 80, 0, byte(2 + i)}), &Endpoint{}
		if i < 2 {
			ep.flow = p.Flow(peer.Node{Site: "far"}, nil)
		}
		f.know([]netip.Addr{a}, ep)
		to = append(to, a)
	}
	const offset = 3
	var bufs [][]byte
	var sizes []int
	add := func(pkt []byte) {
		bufs, sizes = append(bufs, append(make([]byte, offset), pkt...)), append(sizes, len(pkt))
	}
	order := []int{0, 0, 2, 1, 2, 1, 1, 0}
	for i, k := range order {
		add(packet(here, to[k], strconv.Itoa(i)))
	}
	add([]byte("no packet"))
	f.pass(bufs, sizes, offset)
	var held []int
	for _, h := range p.held {
		i, err := strconv.Atoi(string(h.pkt[20:]))
		if err != nil || h.of != p.flows[order[i]] {
			t.Fatalf("%q is in the wrong flow, %v", h.pkt, err)
		}
		held = append(held, i)
	}
	if want := []int{0, 1, 3, 5, 6, 7}; !slices.Equal(held, want) {
		t.Errorf("packets %v are held, want %v", held, want)
	}
	for i, n := range sizes {
		if passes := i == len(order) || order[i] == 2; passes != (n > 0) {
			t.Errorf("packet %d has size %d", i, n)
		}
	}
}
