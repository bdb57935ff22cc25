package shaper

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newShaper(t *testing.T, cfg Config) *Shaper {
	t.Helper()
	if cfg.Kick == nil {
		cfg.Kick = func() {}
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestThread runs a reader, a sender that stands for WireGuard, and the pacing
// thread for 300 ms and counts what comes. It is judged loosely: the machine may
// be busy. How exact the thread is, benchmarks show.
func TestThread(t *testing.T) {
	const rate = 80e6
	kicks := make(chan struct{}, 1)
	var polls, active, sent, inside atomic.Int64
	s := newShaper(t, Config{
		Kick: func() {
			select {
			case kicks <- struct{}{}:
			default:
			}
		},
		Poll:   func() { polls.Add(1) },
		Active: func(string) { active.Add(1) },
	})
	l := s.Link("there")
	l.SetRate(rate)
	f := l.Flow(peer.ID{1}, func(pkts [][]byte) {
		if inside.Add(1) != 1 {
			t.Error("the path is used by two at once")
		}
		for _, p := range pkts {
			sent.Add(int64(len(p) + OverheadIPv4))
		}
		inside.Add(-1)
	})
	seals := make(chan []byte, 1000) // more than a window
	done := make(chan struct{})
	go func() { // ends with seals
		defer close(done)
		for pkt := range seals {
			f.Send([][]byte{pkt})
		}
	}()
	bufs, sizes := make([][]byte, 64), make([]int, 64)
	for i := range bufs {
		bufs[i] = make([]byte, 2048)
	}
	pass := func(pkt []byte) { seals <- seal(pkt, 1420) }
	start := time.Now()
	for seq := uint64(1); time.Since(start) < 300*time.Millisecond; {
		for s.Stats()[0].Flows[0].Waiting < 200 {
			if pkt := packet(0, seq, 1400, true); f.Admit(pkt) {
				pass(pkt)
			}
			seq++
		}
		select {
		case <-kicks:
		case <-time.After(time.Second):
			t.Fatalf("nobody kicks: %+v", s.Stats())
		}
		for n := s.Take(bufs, sizes, 16); n > 0; n = s.Take(bufs, sizes, 16) {
			for i := range n {
				pass(bufs[i][16 : 16+sizes[i]])
			}
		}
	}
	got := float64(sent.Load()) * 8 / time.Since(start).Seconds()
	close(seals)
	<-done
	if got < rate*0.95 || got > rate*1.05 {
		t.Errorf("sent %.4g bit/s, want %.4g within 5 %%", got, rate)
	}
	if polls.Load() < 10 || active.Load() < 1 {
		t.Errorf("polled %d times, active %d times", polls.Load(), active.Load())
	}
	d := l.Demand()
	if d.Sent < sent.Load()/2 || d.Last.Before(start) {
		t.Errorf("demand %+v, sent %d", d, sent.Load())
	}
}

// TestConcurrentUse lets everything happen at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	s := newShaper(t, Config{})
	end := time.Now().Add(200 * time.Millisecond)
	done := make(chan struct{})
	const users = 4
	for u := range users {
		go func() {
			defer func() { done <- struct{}{} }()
			l := s.Link([]string{"a", "b"}[u%2])
			var busy atomic.Bool
			f := l.Flow(peer.ID{byte(u)}, func(pkts [][]byte) {
				for _, p := range pkts {
					p[1]++
				}
			})
			defer f.Close()
			for seq := uint64(0); time.Now().Before(end); seq++ {
				f.Send([][]byte{sealed(seq, 1452), sealed(seq, 1452), sealed(seq, 32)})
				switch seq % 50 {
				case 0:
					l.SetRate(Rate(seq * 1e6))
				case 7:
					s.SetUplink(Rate(seq%3) * 500e6)
				case 11:
					s.Stats()
					l.Demand()
				}
			}
			busy.Store(false)
		}()
	}
	for range users {
		<-done
	}
}

// TestClose: packets that wait are dropped, later ones pass, the path is not
// used after Flow.Close.
func TestClose(t *testing.T) {
	s := newShaper(t, Config{})
	l := s.Link("there")
	l.SetRate(1e6)
	var closed atomic.Bool
	f := l.Flow(peer.ID{1}, func([][]byte) {
		if closed.Load() {
			t.Error("the path of a closed flow is used")
		}
	})
	g := l.Flow(peer.ID{2}, func([][]byte) {})
	for range 100 {
		f.Send([][]byte{sealed(1, 1452)})
		g.Send([][]byte{sealed(1, 1452)})
	}
	f.Close()
	closed.Store(true)
	st := s.Stats()[0]
	if len(st.Flows) != 1 || st.Gone.Dropped+st.Gone.Sent != 100 {
		t.Errorf("after closing a flow: %+v", st)
	}
	f.Send([][]byte{sealed(1, 1452)}) // to nowhere
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	passed := false
	h := l.Flow(peer.ID{3}, func([][]byte) { passed = true })
	if h.Send([][]byte{sealed(1, 1452)}); !passed || !h.Admit(packet(0, 1, 100, true)) {
		t.Error("a closed shaper is in the way")
	}
}

// TestUnlimited: without limits packets pass as they are, without a copy or an
// allocation.
func TestUnlimited(t *testing.T) {
	s := newShaper(t, Config{Poll: func() { t.Error("polled without a limit") }})
	pkts := [][]byte{sealed(1, 1452), sealed(2, 1452)}
	same := false
	f := s.Link("there").Flow(peer.ID{1}, func(p [][]byte) { same = &p[0][0] == &pkts[0][0] && len(p) == 2 })
	in := packet(0, 1, 1400, true)
	if n := testing.AllocsPerRun(100, func() { f.Admit(in); f.Send(pkts) }); n != 0 || !same {
		t.Errorf("%v allocations, passed as they are: %v", n, same)
	}
}

func TestNewNeedsKick(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New took a Config without Kick")
	}
}
