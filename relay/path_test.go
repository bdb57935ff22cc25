package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// wired is a path that works, and its other end.
type wired struct {
	path peer.Path
	from peer.ID
	// receive waits for n packets, or for as many as come within a while.
	receive func(n int) []delivered
}

// pathContract is what every peer.Path promises.
var pathContract = []struct {
	name  string
	check func(t *testing.T, w wired)
}{
	{"batches arrive in order", contractOrder},
	{"sizes may differ", contractSizes},
	{"unfit packets do not stop others", contractUnfit},
	{"nothing is nothing", contractNothing},
	{"many send at once", contractConcurrent},
	{"says what it is", contractInfo},
	{"closes for good", contractClose},
}

func TestPathContract(t *testing.T) {
	for _, on := range []struct {
		name string
		wire func(t *testing.T) wired
	}{
		{"memory", wireMemory},
		{"loopback", wireLoopback},
	} {
		for _, c := range pathContract {
			t.Run(on.name+"/"+c.name, func(t *testing.T) { c.check(t, on.wire(t)) })
		}
	}
}

func contractOrder(t *testing.T, w wired) {
	pkts := numbered(100, 1200)
	want := numbered(100, 1200)
	if err := w.path.Send(pkts); err != nil {
		t.Fatal(err)
	}
	for i := range pkts {
		if !slices.Equal(pkts[i], want[i]) {
			t.Fatalf("Send changed packet %d", i)
		}
		clear(pkts[i]) // and retains nothing
	}
	if err := checkNumbered(w.receive(100), w.from, 100, 1200); err != nil {
		t.Error(err)
	}
}

func contractSizes(t *testing.T, w wired) {
	sizes := []int{32, 1452, 1452, 100, 9000, 33, 148, 1452}
	pkts := make([][]byte, len(sizes))
	for i, n := range sizes {
		pkts[i] = wireGuard(n, byte(i))
	}
	if err := w.path.Send(pkts); err != nil {
		t.Fatal(err)
	}
	got := w.receive(len(sizes))
	if len(got) != len(sizes) {
		t.Fatalf("%d packets arrived, want %d", len(got), len(sizes))
	}
	for i, g := range got {
		if !slices.Equal(g.payload, pkts[i]) {
			t.Errorf("packet %d arrived with %d bytes, want %d, or altered", i, len(g.payload), sizes[i])
		}
	}
}

func contractUnfit(t *testing.T, w wired) {
	err := w.path.Send([][]byte{make([]byte, wire.MaxDatagram), wireGuard(64, 1), nil})
	if !errors.Is(err, errUnfit) {
		t.Errorf("Send = %v, want %v", err, errUnfit)
	}
	if got := w.receive(1); len(got) != 1 || !slices.Equal(got[0].payload, wireGuard(64, 1)) {
		t.Errorf("arrived: %v", got)
	}
}

func contractNothing(t *testing.T, w wired) {
	if err := w.path.Send(nil); err != nil {
		t.Errorf("Send of no packets = %v", err)
	}
}

func contractConcurrent(t *testing.T, w wired) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := w.path.Send(slices.Repeat([][]byte{wireGuard(500, byte(i))}, 20)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := w.receive(80)
	for _, g := range got {
		if !slices.Equal(g.payload, wireGuard(500, g.payload[4]-4)) {
			t.Fatalf("packets were mixed: %x", g.payload)
		}
	}
	if len(got) != 80 {
		t.Errorf("%d packets arrived, want 80", len(got))
	}
}

func contractInfo(t *testing.T, w wired) {
	info := w.path.Info()
	if info.Kind != peer.KindRelayUDP || !slices.Equal(info.Via, []string{"r1"}) || !info.Remote.IsValid() {
		t.Errorf("Info() = %+v", info)
	}
}

func contractClose(t *testing.T, w wired) {
	for range 2 {
		if err := w.path.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if err := w.path.Send(numbered(1, 64)); !errors.Is(err, ErrClosed) {
		t.Errorf("Send after Close = %v, want %v", err, ErrClosed)
	}
	if got := w.path.Info().Kind; got != peer.KindRelayUDP {
		t.Errorf("Info after Close has kind %v", got)
	}
}

func wireMemory(t *testing.T) wired {
	w := newWorld(t, 0)
	w.grant(w.a)
	w.grant(w.b)
	for _, m := range []*memberHost{w.a, w.b} { // binds once, without Run
		frame := make([]byte, bindLen)
		_, to := m.step(frame, time.Now())
		if err := m.send([][]byte{frame}, to); err != nil || !m.Bound() {
			t.Fatalf("not bound: %v", err)
		}
	}
	return wired{w.a.Path(w.b.id), w.a.id, func(int) []delivered { return w.b.take() }}
}

// sockets is a relay and its members on UDP sockets of their own.
type sockets struct {
	t       *testing.T
	ctx     context.Context
	server  *Server
	hub     netip.AddrPort
	conns   []*net.UDPConn
	serving sync.WaitGroup
	arrived chan delivered
	bound   chan struct{}
}

func wireLoopback(t *testing.T) wired {
	ctx, cancel := context.WithCancel(t.Context())
	s := &sockets{
		t: t, ctx: ctx,
		arrived: make(chan delivered, 1000), // more than any test sends
		bound:   make(chan struct{}, 2),     // one for each member
	}
	t.Cleanup(func() {
		cancel()
		for _, conn := range s.conns {
			_ = conn.Close()
		}
		s.serving.Wait()
	})
	hub := s.listen()
	s.hub = hub.LocalAddr().(*net.UDPAddr).AddrPort()
	s.server = NewServer(ServerConfig{Name: "r1", Send: writer(hub)})
	s.serve(hub, s.server.Input)
	a := s.member(node('a'))
	s.member(node('b'))
	for range 2 {
		select {
		case <-s.bound:
		case <-time.After(10 * time.Second):
			t.Fatal("not bound after 10 s")
		}
	}
	return wired{a.Path(node('b')), node('a'), s.receive}
}

func (s *sockets) listen() *net.UDPConn {
	s.t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		s.t.Fatal(err)
	}
	_ = conn.SetReadBuffer(4 << 20) // as much of it as the system allows
	s.conns = append(s.conns, conn)
	return conn
}

// serve reads a socket until it is closed.
func (s *sockets) serve(conn *net.UDPConn, input func([][]byte, netip.AddrPort)) {
	s.serving.Go(func() {
		buf := make([]byte, wire.MaxDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			input([][]byte{buf[:n]}, from)
		}
	})
}

// member admits a node and runs it until the test ends.
func (s *sockets) member(id peer.ID) *Client {
	s.t.Helper()
	conn := s.listen()
	c := NewClient(ClientConfig{Self: id, Send: writer(conn), Bound: func(netip.AddrPort) {
		select {
		case s.bound <- struct{}{}:
		default: // later changes interest nobody
		}
	}})
	s.serve(conn, func(pkts [][]byte, from netip.AddrPort) {
		if wire.Type(pkts[0][1]) == wire.TypeRelayBound {
			c.HandleBound(pkts[0], from)
		} else if origin, payload, ok := c.Unwrap(pkts[0]); ok && from == c.Relay() {
			s.arrived <- delivered{origin, slices.Clone(payload)}
		}
	})
	doc, err := s.server.Admit(id, time.Now().Add(time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	g, err := ParseGrant(doc)
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetGrant(g, s.hub)
	s.serving.Go(func() { _ = c.Run(s.ctx) }) // only ever ctx's error
	return c
}

func (s *sockets) receive(n int) (got []delivered) {
	for range n {
		select {
		case d := <-s.arrived:
			got = append(got, d)
		case <-time.After(10 * time.Second):
			return got
		}
	}
	return got
}

// writer sends datagrams one by one.
func writer(conn *net.UDPConn) func([][]byte, netip.AddrPort) error {
	return func(pkts [][]byte, to netip.AddrPort) error {
		for _, p := range pkts {
			if _, err := conn.WriteToUDPAddrPort(p, to); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestFramesLieBackToBack checks what segmentation offload needs: appending the
// following frames to the first must find them already there.
func TestFramesLieBackToBack(t *testing.T) {
	var calls []int
	w := newWorld(t, 0)
	g := w.grant(w.a)
	c := NewClient(ClientConfig{Self: node('a'), Send: func(pkts [][]byte, _ netip.AddrPort) error {
		calls = append(calls, len(pkts))
		before := make([][]byte, len(pkts))
		for i, p := range pkts {
			before[i] = slices.Clone(p)
		}
		joined := pkts[0]
		for _, p := range pkts[1:] {
			if &joined[:len(joined)+1][len(joined)] != &p[0] || cap(joined) < len(joined)+len(p) {
				return errors.New("a gap, or no capacity")
			}
			joined = append(joined, p...)
		}
		for i, p := range pkts {
			if !slices.Equal(p, before[i]) {
				return errors.New("joining altered a frame")
			}
		}
		return nil
	}})
	c.SetGrant(g, relayAddr)
	c.live.Store(&relayAddr)
	if err := c.Path(node('b')).Send(numbered(100, 1452)); err != nil {
		t.Error(err)
	}
	perCall := wrapSize / (1452 + wire.RelayHeaderLen)
	if want := []int{perCall, perCall, 100 - 2*perCall}; !slices.Equal(calls, want) {
		t.Errorf("left in calls of %v, want %v", calls, want)
	}
	calls = nil
	if err := c.Path(node('b')).Send(numbered(batchSize+1, 32)); err != nil {
		t.Error(err)
	}
	if want := []int{batchSize, 1}; !slices.Equal(calls, want) {
		t.Errorf("left in calls of %v, want %v", calls, want)
	}
}
