package estimate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// town is a site of nodes that send over one line to one node of another site each,
// and what they tell each other. Clocks differ, messages take their time, some are
// lost.
type town struct {
	*line
	t     *testing.T
	now   time.Duration
	delay time.Duration // of the line, one way
	lossy float64       // part of messages that is lost
	nodes []*townsman
	queue events
	seq   int
	deaf  bool // receivers that tell nothing
}

// townsman is a node.
type townsman struct {
	*Meter
	id, far peer.ID
	up      bool
	hungry  bool
	wake    time.Duration
	sent    float64   // bytes ever
	got     float64   // at the other end
	flying  []float64 // arrives in so many ms
	was     int64     // got, as told last
	skew    time.Duration
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() (x any) {
	old := *e
	x, *e = old[len(old)-1], old[:len(old)-1]
	return x
}

func newTown(t *testing.T, n int, rate, queue, loss float64, delay time.Duration) *town {
	s := &town{line: newLine(rate, queue, loss, n), t: t, delay: delay, lossy: 0.01}
	for i := range n {
		v := &townsman{id: peer.ID{byte(i + 1)}, far: peer.ID{9, byte(i + 1)}, up: true, flying: make([]float64, delay/ms+1)}
		v.skew = time.Duration(s.rng.Int64N(int64(time.Hour)))
		v.Meter = NewMeter(Config{Self: v.id, Sent: func(yield func(peer.ID, string, int64, time.Duration)) {
			yield(v.far, "b", int64(v.sent), 2*delay+ms)
		}})
		v.Measure([]string{""}, func(string) int64 { return 0 })
		s.nodes = append(s.nodes, v)
	}
	s.members()
	return s
}

// members tells all who is up.
func (s *town) members() {
	var up []peer.ID
	for _, v := range s.nodes {
		if v.up {
			up = append(up, v.id)
		}
	}
	for _, v := range s.nodes {
		v.Members(up)
	}
}

func (s *town) later(d time.Duration, do func()) {
	s.seq++
	if s.rng.Float64() >= s.lossy {
		heap.Push(&s.queue, event{s.now + d, s.seq, do})
	}
}

func (s *town) jitter(d time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(d))) }

// step has a node do what is due.
func (s *town) step(v *townsman) {
	out, wake := v.Step(s.now + v.skew)
	v.wake = wake
	for _, msg := range out {
		s.later(200*time.Microsecond+s.jitter(ms), func() {
			i := slices.IndexFunc(s.nodes, func(o *townsman) bool { return o.id == msg.To })
			o := s.nodes[i]
			if !o.up {
				return
			}
			if err := o.Receive(s.now+o.skew, v.id, true, msg.Data); err != nil {
				s.t.Fatal(err)
			}
			s.step(o)
		})
	}
}

// share is what a node sends at: all that are hungry have the same.
func (s *town) share(v *townsman) float64 {
	n := 0
	for _, o := range s.nodes {
		if o.hungry && o.up {
			n++
		}
	}
	if !v.hungry || !v.up {
		return 0
	}
	rate := v.Rate("")
	if rate == 0 {
		return 1e9
	}
	return float64(rate) / float64(n) * 0.98
}

func (s *town) run(d time.Duration) {
	s.dropped, s.offered = 0, 0
	for end := s.now + d; s.now < end; {
		s.now += ms
		for len(s.queue) > 0 && s.queue[0].at <= s.now {
			heap.Pop(&s.queue).(event).do()
		}
		in := make([]float64, len(s.nodes)+1)
		for i, v := range s.nodes {
			in[i+1] = s.share(v) / 8000
			v.sent += in[i+1]
		}
		for i, b := range s.line.step(in)[1:] {
			v := s.nodes[i]
			v.flying = append(v.flying[1:], b)
			v.got += v.flying[0]
			if b := int64(v.got); s.now%TallyEvery == time.Duration(i)*ms && b != v.was && !s.deaf {
				v.was = b
				data := AppendTally(nil, s.now, b)
				s.later(s.delay+s.jitter(5*ms), func() {
					if v.up {
						_ = v.Receive(s.now+v.skew, v.far, false, data) // nobody may have been sent to yet
					}
				})
			}
		}
		for _, v := range s.nodes {
			if v.up && v.hungry && v.Rate("") != 0 { // without a limit nobody knows of demand
				v.Wake(s.now + v.skew)
			}
			if v.up && (v.wake <= s.now+v.skew) {
				s.step(v)
			}
		}
	}
}

// want checks what the nodes believe.
func (s *town) want(what string, rate, more float64) {
	s.t.Helper()
	for i, v := range s.nodes {
		if !v.up || !v.hungry {
			continue
		}
		for _, x := range v.Explain(s.now + v.skew) {
			if r := float64(x.Found) / rate; r < 0.9-more || r*cruising > 1.03+more {
				s.t.Errorf("%s: at %v node %d believes %.2f Mb/s of %.2f", what, s.now, i, float64(x.Found)/1e6, rate/1e6)
			}
		}
	}
}

// TestTown: the nodes of a site agree on a rate, find and follow it, whoever of them
// sends, and while leaders come and go.
func TestTown(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8} {
		for _, delay := range []time.Duration{ms, 20 * ms, 50 * ms} {
			for _, loss := range []float64{0, 0.01} {
				t.Run(fmt.Sprintf("%d nodes,%v,%v", n, delay, loss), func(t *testing.T) {
					const rate = 50e6
					s := newTown(t, n, rate, 100e3, loss, delay)
					s.run(time.Second) // nobody sends
					if s.seq > 0 {
						t.Errorf("%d messages while nobody sends", s.seq)
					}
					for _, v := range s.nodes {
						v.hungry = true
					}
					s.run(2*time.Second + 4*delay)
					s.want("all send", rate, soon)
					s.run(10 * time.Second)
					s.want("settled", rate, 0)
					if lost := s.dropped / s.offered; lost > 0.006 {
						t.Errorf("the queue drops %.4f", lost)
					}
					for _, v := range s.nodes[:n-1] { // the leader is one that sends nothing
						v.hungry = false
					}
					s.run(3 * time.Second)
					s.want("one sends", rate, 0)
					s.rate = rate / 4
					s.run(time.Second + 4*delay)
					s.want("a quarter", s.rate, soon)
					s.run(3 * time.Second)
					s.rate = rate
					s.run(6 * time.Second)
					s.want("four times", rate, soon)
					if n > 1 {
						s.nodes[0].up = false // and nobody has noticed
						s.run(3 * time.Second)
						s.want("the leader is gone", rate, 0)
						s.nodes[0].up = true // it has been stopped for a while
						s.run(time.Second)
						for i, v := range s.nodes {
							if lead := v.leader(s.now + v.skew); lead != s.nodes[0].id {
								t.Errorf("node %d follows %v", i, lead)
							}
						}
						s.nodes[0].up = false
						s.members()
						s.run(time.Second)
						s.rate = rate / 2
						s.run(time.Second + 4*delay)
						s.want("half, with another leader", s.rate, soon)
					}
					for _, v := range s.nodes {
						v.hungry = false
					}
					s.run(3 * time.Second)
					for i, v := range s.nodes {
						if v.up && len(v.feeds) > 0 {
							t.Errorf("long after the last byte node %d keeps %d destinations", i, len(v.feeds))
						}
					}
					was := s.seq
					s.run(5 * time.Second)
					if s.seq != was {
						t.Errorf("%d messages long after the last byte", s.seq-was)
					}
				})
			}
		}
	}
}

// TestSilentReceivers: where nobody tells what arrives there is no limit, until
// somebody does.
func TestSilentReceivers(t *testing.T) {
	for _, seed := range []uint64{1, 16, 20} {
		silentReceivers(t, seed)
	}
}

func silentReceivers(t *testing.T, seed uint64) {
	s := newTown(t, 2, 50e6, 100e3, 0, 5*ms)
	s.rng = rand.New(rand.NewPCG(seed, 2))
	s.deaf = true
	for _, v := range s.nodes {
		v.hungry = true
	}
	s.run(5 * time.Second)
	for i, v := range s.nodes {
		if r := v.Rate(""); r != 0 {
			t.Errorf("node %d keeps to %d", i, r)
		}
	}
	s.deaf = false
	s.run(8 * time.Second)
	s.want("they tell", 50e6, 0)
	s.deaf = true
	s.run(6 * time.Second)
	for _, v := range s.nodes {
		v.hungry = false
	}
	s.run(3 * time.Second)
	s.deaf = false
	for i, v := range s.nodes {
		if v.hungry = true; v.next != 0 || v.Rate("") != 0 {
			t.Errorf("node %d is awake at %v or keeps to %d", i, v.next, v.Rate(""))
		}
	}
	s.run(8 * time.Second)
	s.want("they tell after a pause", 50e6, 0)
}
