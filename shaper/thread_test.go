package shaper

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
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

// TestThreadRate: the pacing thread, by itself, keeps a rate for 300 ms: it is never above,
// and far below only where others have the processor, which they have not in each of some
// tries. How exact it is, benchmarks show.
func TestThreadRate(t *testing.T) {
	const rate = 20e6
	for try := 1; ; try++ {
		got := threadRate(t, rate)
		if got > rate*1.05 || got < rate/4 && try == 10 {
			t.Fatalf("try %d: sent %.4g bit/s, want %.4g", try, got, rate)
		}
		if got >= rate/4 {
			return
		}
	}
}

// threadRate sends 500 datagrams at a rate and returns that at which they left.
func threadRate(t *testing.T, rate Rate) float64 {
	t.Helper()
	const number, wire = 500, 1458 + overheadIPv4
	s := newShaper(t, Config{})
	l := s.Link("there")
	l.SetRate(1000) // until all wait
	var start time.Time
	var count int // by one at a time, and done orders it before what follows
	done := make(chan time.Duration, 1)
	f := l.Flow(peer.ID{1}, func(pkts [][]byte) {
		if count += len(pkts); count == number {
			done <- time.Since(start)
		}
	})
	for seq := range uint64(number) {
		f.Send([][]byte{sealed(seq+1, 1458)})
	}
	start = time.Now()
	l.SetRate(rate)
	took := <-done
	if st := s.Stats()[0].Flows[0]; st.Sent != number || st.SentBytes != number*wire || st.Dropped != 0 || st.WorstQueue < 250*time.Millisecond {
		t.Errorf("statistics %+v", st)
	}
	return float64(number*wire) * 8 / took.Seconds()
}

// TestBothStages runs a reader, a sender that stands for WireGuard, and the
// pacing thread: all that goes in comes out, in order.
func TestBothStages(t *testing.T) {
	const number = 1500
	kicks := make(chan struct{}, 1)
	var polls, active, inside atomic.Int64
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
	l.SetRate(80e6)
	var seen uint64
	all := make(chan struct{})
	f := l.Flow(peer.ID{1}, func(pkts [][]byte) {
		if inside.Add(1) != 1 {
			t.Error("the path is used by two at once")
		}
		for _, p := range pkts {
			if seq := binary.BigEndian.Uint64(p[8:]); seq != seen+1 {
				t.Errorf("number %d came after %d", seq, seen)
			}
			if seen++; seen == number {
				close(all)
			}
		}
		inside.Add(-1)
	})
	seals := make(chan []byte, number)
	done := make(chan struct{})
	go func() { // ends with seals
		defer close(done)
		for pkt := range seals {
			f.Send([][]byte{pkt})
		}
	}()
	read(t, s, f, number, kicks, func(pkt []byte) { seals <- seal(pkt, 1420) })
	close(seals)
	<-done
	<-all
	eventually.Holds(t, "nothing waits", func() bool { return l.Demand().Waiting == 0 }) // the last one is counted after it has been sent
	d, st := l.Demand(), s.Stats()[0]
	if d.Waiting != 0 || d.Sent != int64(st.Flows[0].SentBytes) || d.Last.IsZero() || st.Flows[0].Dropped != 0 {
		t.Errorf("demand %+v, statistics %+v", d, st)
	}
	if polls.Load() == 0 || active.Load() == 0 {
		t.Errorf("polled %d times, active %d times", polls.Load(), active.Load())
	}
}

// admitted offers one packet.
func admitted(f *Flow, pkt []byte) bool {
	sizes := [1]int{len(pkt)}
	f.Admit([][]byte{pkt}, sizes[:], 0)
	return sizes[0] > 0
}

// read is the TUN's reader: it offers packets, at most 100 waiting, until all
// of them have been let through.
func read(t *testing.T, s *Shaper, f *Flow, number uint64, kicks <-chan struct{}, pass func(pkt []byte)) {
	t.Helper()
	bufs, sizes := make([][]byte, 64), make([]int, 64)
	for i := range bufs {
		bufs[i] = make([]byte, 2048)
	}
	waiting := 0
	for seq := uint64(1); seq <= number || waiting > 0; {
		for ; seq <= number && waiting < 100; seq++ {
			if pkt := packet(0, seq, 1400, true); admitted(f, pkt) {
				pass(pkt)
			} else {
				waiting++
			}
		}
		if waiting == 0 {
			continue
		}
		select {
		case <-kicks:
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody kicks: %+v", s.Stats())
		}
		for n := s.Take(bufs, sizes, 16); n > 0; n = s.Take(bufs, sizes, 16) {
			waiting -= n
			for i := range n {
				pass(bufs[i][16 : 16+sizes[i]])
			}
		}
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
	if h.Send([][]byte{sealed(1, 1452)}); !passed || !admitted(h, packet(0, 1, 100, true)) {
		t.Error("a closed shaper is in the way")
	}
}

// TestPollLate: what waits is seen to every 2 ms although nobody sends any more, and not
// by the pacing thread.
func TestPollLate(t *testing.T) {
	var polls, late atomic.Int64
	s := newShaper(t, Config{Poll: func() { polls.Add(1) }, PollLate: func() { late.Add(1) }})
	l := s.Link("there")
	l.SetRate(1e6) // 12 ms for each
	f := l.Flow(peer.ID{1}, func([][]byte) {})
	time.Sleep(time.Duration(pollEvery))
	f.Send([][]byte{sealed(1, 1452), sealed(2, 1452), sealed(3, 1452), sealed(4, 1452), sealed(5, 1452), sealed(6, 1452)})
	eventually.Holds(t, "all are sent", func() bool { return l.Demand().Waiting == 0 })
	if p, n := polls.Load(), late.Load(); p > 1 || n < 3 {
		t.Errorf("polled %d times by who sends, want 1 at most; %d times by others, want 3 at least in 48 ms or more", p, n)
	}
}

// TestUnlimited: without limits packets pass as they are, without a copy or an
// allocation.
func TestUnlimited(t *testing.T) {
	s := newShaper(t, Config{Poll: func() { t.Error("polled without a limit") }})
	pkts := [][]byte{sealed(1, 1452), sealed(2, 1452)}
	same := false
	f := s.Link("there").Flow(peer.ID{1}, func(p [][]byte) { same = &p[0][0] == &pkts[0][0] && len(p) == 2 })
	in, sizes := [][]byte{packet(0, 1, 1400, true)}, []int{1400}
	if n := testing.AllocsPerRun(100, func() { f.Admit(in, sizes, 0); f.Send(pkts) }); n != 0 || !same {
		t.Errorf("%v allocations, passed as they are: %v", n, same)
	}
}

func TestNewNeedsKick(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New took a Config without Kick")
	}
}

// TestThreadFreed: a link that was asked to give while it sent says so when it has sent all.
func TestThreadFreed(t *testing.T) {
	var freed atomic.Int64
	s := newShaper(t, Config{Freed: func() { freed.Add(1) }})
	l := s.Link("there")
	l.SetMost(100e6, 15000)
	l.SetRate(5e6)
	f := l.Flow(peer.ID{1}, func([][]byte) {})
	defer f.Close()
	for seq := range uint64(200) {
		f.Send([][]byte{sealed(seq, 1452)})
	}
	if got, soon := l.Give(5000, time.Millisecond); got != 0 || soon {
		t.Errorf("while it sends it gives %d bytes, more soon: %v", got, soon)
	}
	eventually.Holds(t, "it says that it sends no longer", func() bool { return freed.Load() > 0 })
	if d := l.Demand(); d.Waiting > 0 {
		t.Errorf("%d bytes wait still", d.Waiting)
	}
	if got := freed.Load(); got != 1 {
		t.Errorf("it says so %d times", got)
	}
}
