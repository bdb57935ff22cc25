package relay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// fast is a server with two bound members whose Send costs nothing.
func fast(tb testing.TB) (s *Server, a Grant) {
	now := time.Unix(1_700_000_000, 0)
	s = NewServer(ServerConfig{
		Name: "r1", Now: func() time.Time { return now },
		Send: func([][]byte, netip.AddrPort) error { return nil },
	})
	for i, addr := range []netip.AddrPort{addrB, addrC, addrA} {
		doc, err := s.Admit(node("bca"[i]), now.Add(time.Hour))
		if err != nil {
			tb.Fatal(err)
		}
		if a, err = ParseGrant(doc); err != nil {
			tb.Fatal(err)
		}
		s.Input([][]byte{bindFrame(a, 1, 0)}, addr)
	}
	if st := s.Stats(); st.Bindings != 3 {
		tb.Fatalf("Stats() = %+v", st)
	}
	return s, a
}

// refill makes sends of delivers again: the server rewrote them in place.
func refill(batch [][]byte, to ...peer.Short) {
	for i, p := range batch {
		putHeader(p, wire.TypeRelaySend, to[i%len(to)])
	}
}

func newBatch() [][]byte {
	batch := make([][]byte, batchSize)
	for i := range batch {
		batch[i] = sendFrame(node('b'), wireGuard(1452, 0))
	}
	return batch
}

// idle is a client that is bound and whose Send costs nothing.
func idle() *Client {
	c := NewClient(ClientConfig{Self: node('a'), Send: func([][]byte, netip.AddrPort) error { return nil }})
	c.live.Store(&relayAddr)
	return c
}

func TestNothingIsAllocated(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector a sync.Pool drops at random")
	}
	s, a := fast(t)
	batch := newBatch()
	b, c := node('b').Short(), node('c').Short()
	again, counter := [][]byte{make([]byte, bindLen)}, uint64(1)
	m := newMAC(&a.Key)
	path, pkts := idle().Path(node('b')), numbered(batchSize, 1452)
	for name, f := range map[string]func(){
		"one destination":  func() { refill(batch, b); s.Input(batch, addrA) },
		"two destinations": func() { refill(batch, b, c); s.Input(batch, addrA) },
		"dropped":          func() { refill(batch, a.Short); s.Input(batch, addrA); s.Input(batch, addrX) },
		"bind": func() {
			counter++
			putBind(again[0], bind{short: a.Short, counter: counter})
			m.seal(again[0])
			s.Input(again, addrA)
		},
		"path": func() {
			if err := path.Send(pkts); err != nil {
				t.Error(err)
			}
		},
	} {
		if got := testing.AllocsPerRun(200, f); got != 0 {
			t.Errorf("%s: %v allocations a batch", name, got)
		}
	}
	if got := s.Stats().Binds; got != counter+2 { // two of others
		t.Errorf("%d binds were accepted, want %d", got, counter+2)
	}
}

func BenchmarkServerInput(b *testing.B) {
	one, two := node('b').Short(), node('c').Short()
	for _, bc := range []struct {
		name string
		to   []peer.Short
	}{
		{"run", []peer.Short{one}},
		{"alternating", []peer.Short{one, two}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s, _ := fast(b)
			batch := newBatch()
			b.ReportAllocs()
			for b.Loop() {
				refill(batch, bc.to...)
				s.Input(batch, addrA)
			}
			perPacket(b)
		})
	}
	b.Run("forged-binds", func(b *testing.B) {
		s, a := fast(b)
		forged := bindFrame(a, 9, 0)
		forged[macAt] ^= 1
		batch := make([][]byte, batchSize)
		for i := range batch {
			batch[i] = forged
		}
		b.ReportAllocs()
		for b.Loop() {
			s.Input(batch, addrX)
		}
		perPacket(b)
	})
}

func BenchmarkPathSend(b *testing.B) {
	path, pkts := idle().Path(node('b')), numbered(batchSize, 1452)
	b.SetBytes(batchSize * 1452)
	b.ReportAllocs()
	for b.Loop() {
		if err := path.Send(pkts); err != nil {
			b.Fatal(err)
		}
	}
	perPacket(b)
}

func perPacket(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batchSize, "ns/packet")
}
