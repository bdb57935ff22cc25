package estimate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// soon is what may be wrong yet soon after a change; 4 Mb/s and less take longer.
const soon = 0.04

// trial is an Estimator that sees everything, on a line.
type trial struct {
	*line
	e      *Estimator
	delay  time.Duration // one way
	stall  time.Duration // by how much a reader is late, at most
	often  float64       // begun in a part of the milliseconds
	burst  float64       // bytes: what is sent leaves in pieces of so much, and arrives in packets
	want   func(now time.Duration) float64
	others func(now time.Duration) float64

	now       time.Duration
	due       float64    // may be sent, and is less than a burst
	part      float64    // of a packet has arrived
	sent, got float64    // in this slot, bytes
	told      [][2]int64 // samples that are still under way to it
	flying    []float64  // arrives in so many ms
	held      float64    // has arrived and is not read
	hold      int        // for so many ms
	trace     func(string)

	sumSent, sumGot float64
	highest         float64 // queue
	long            int     // ms with more than half a queue
}

func newTrial(rate, queue, loss float64, delay time.Duration, known int64) *trial {
	return &trial{
		line: newLine(rate, queue, loss, 1), e: NewEstimator(known), delay: delay, stall: 3 * ms, often: 0.05,
		want: func(time.Duration) float64 { return 1e12 }, others: func(time.Duration) float64 { return 0 },
		flying: make([]float64, delay/ms+1),
	}
}

// run plays for a time.
func (s *trial) run(d time.Duration) {
	s.sumSent, s.sumGot, s.highest, s.long, s.dropped, s.offered = 0, 0, 0, 0, 0, 0
	for end := s.now + d; s.now < end; {
		s.now += ms
		rate := min(s.want(s.now), float64(s.e.Pace())*0.98) // lending leaves a little
		b := rate / 8000
		if s.due += b; s.due < s.burst {
			b = 0
		} else {
			b, s.due = s.due, 0
		}
		s.sent += b
		s.sumSent += b
		out := s.step([]float64{s.others(s.now) / 8000, b})
		s.flying = append(s.flying[1:], out[1])
		s.held += s.flying[0]
		if s.hold--; s.hold <= 0 {
			s.part += s.held
			whole := s.part
			if s.burst > 0 {
				whole = math.Floor(s.part/packet) * packet
			}
			s.got += whole
			s.sumGot += whole
			s.held, s.part = 0, s.part-whole
			if s.rng.Float64() < s.often && s.stall > 0 {
				s.hold = 1 + s.rng.IntN(int(s.stall/ms))
			}
		}
		q := s.backlog()
		if s.highest = max(s.highest, q); q > s.limit/2 {
			s.long++
		}
		if s.now%Slot == 0 {
			was := s.e.phase
			s.told = append(s.told, [2]int64{int64(s.sent), int64(s.got)})
			if len(s.told) > visible {
				s.e.Add(s.told[0][0], s.told[0][1], int((s.delay+s.stall/2+Slot/2)/Slot), true)
				s.told = s.told[1:]
			}
			s.sent, s.got = 0, 0
			if s.trace != nil && (s.e.phase != was) {
				s.trace(fmt.Sprintf("%6v phase %d found %.2f pace %.2f queue %.0f kB loss %.3f", s.now, s.e.phase, s.e.found/1e6, s.e.pace/1e6, q/1000, s.e.loss))
			}
		}
	}
}

// within checks that what is found is at most a tenth below, and the pace of
// cruise at most 3 % above; soon after a change a few percent more.
func (s *trial) within(t *testing.T, what string, rate, more float64) {
	t.Helper()
	bits, _ := s.e.Found()
	least := 0.9
	if rate < 10e6 && s.loss > 0 { // few packets: a lost one weighs much
		least = 0.8
	}
	if r := float64(bits) / rate; r < least-more || r*cruising > 1.03+more {
		t.Errorf("%s: at %v it has found %.2f Mb/s of %.2f", what, s.now, float64(bits)/1e6, rate/1e6)
	}
}

// TestFinds: every line is found within two seconds of demand, is used, and its
// queue is nearly empty most of the time; a rate that falls to a quarter is followed
// within a second, one that rises to four times within three.
func TestFinds(t *testing.T) {
	for _, rate := range []float64{4e6, 20e6, 100e6, 400e6} {
		for _, queue := range []float64{30e3, 64e3, 500e3} {
			for _, delay := range []time.Duration{0, 5 * ms, 50 * ms} {
				for _, loss := range []float64{0, 0.003, 0.01} {
					t.Run(fmt.Sprintf("%.0fMb/s,%.0fkB,%v,%v", rate/1e6, queue/1e3, delay, loss), func(t *testing.T) {
						s := newTrial(rate, queue, loss, delay, 0)
						if testing.Verbose() {
							s.trace = func(l string) { t.Log(l) }
						}
						s.run(2*time.Second + 2*delay)
						s.within(t, "start", rate, soon)
						s.run(2 * time.Second)
						for range 10 {
							s.run(2 * time.Second)
							s.within(t, "settled", rate, 0)
						}
						s.run(10 * time.Second)
						if used := s.sumSent * 8 / 10 / rate; used < 0.87 || used > 1.01 {
							t.Errorf("the line is used to %.3f", used)
						}
						if s.long > 3000 {
							t.Errorf("the queue is more than half full %d ms of 10 s", s.long)
						}
						if lost := s.dropped / s.offered; lost > 0.006 {
							t.Errorf("the queue drops %.4f", lost)
						}
						s.rate = rate / 4
						s.run(time.Second + 2*delay)
						if rate < 20e6 {
							s.run(time.Second)
						}
						s.within(t, "a quarter", s.rate, soon)
						s.run(5 * time.Second)
						s.within(t, "a quarter, settled", s.rate, 0)
						s.rate = rate
						s.run(3*time.Second + 2*delay)
						if loss > 0 || rate < 20e6 {
							s.run(4 * time.Second) // chance may spoil the first probes
						}
						s.within(t, "four times", s.rate, 0)
					})
				}
			}
		}
	}
}

// TestNarrow: where a slot carries a packet or two, or none, a line is found and followed
// too, if only within seconds, and a rate that was far too low is not kept.
func TestNarrow(t *testing.T) {
	for _, rate := range []float64{250e3, 500e3, 1e6, 2e6, 3e6} {
		for _, delay := range []time.Duration{ms, 20 * ms, 100 * ms} {
			for _, loss := range []float64{0, 0.005} {
				t.Run(fmt.Sprintf("%.0fkb/s,%v,%v", rate/1e3, delay, loss), func(t *testing.T) {
					s := newTrial(rate, 64e3, loss, delay, minRate)
					s.burst = 2 * packet
					if testing.Verbose() {
						s.trace = func(l string) { t.Log(l) }
					}
					s.run(90 * time.Second)
					s.narrow(t, "far too low before", rate, 1.1)
					s.run(60 * time.Second)
					s.narrow(t, "settled", rate, 1.1)
					if used := s.sumSent * 8 / 60 / rate; used < 0.8 || used > 1.02 {
						t.Errorf("the line is used to %.3f", used)
					}
					if lost := s.dropped / s.offered; lost > 0.02 {
						t.Errorf("the queue drops %.4f", lost)
					}
					if s.long > 12_000 {
						t.Errorf("the queue is more than half full %d ms of 60 s", s.long)
					}
					s.rate = rate / 2
					s.run(15 * time.Second)
					s.narrow(t, "half", s.rate, 1.2) // so much is still coming down: a packet more or less in 100 ms says little
				})
			}
		}
	}
}

// narrow checks that what is found is at most a fifth below, and at most so many times the rate.
func (s *trial) narrow(t *testing.T, what string, rate, most float64) {
	t.Helper()
	if bits, _ := s.e.Found(); float64(bits) < 0.8*rate || float64(bits) > most*rate {
		t.Errorf("%s: at %v it has found %.0f kb/s of %.0f", what, s.now, float64(bits)/1e3, rate/1e3)
	}
}

// TestLittleDemand: less demand, or demand in bursts, lowers nothing and raises
// nothing; what a daemon knew from before is kept.
func TestLittleDemand(t *testing.T) {
	const rate = 20e6
	for name, want := range map[string]func(now time.Duration) float64{
		"none":           func(time.Duration) float64 { return 0 },
		"a tenth":        func(time.Duration) float64 { return rate / 10 },
		"four fifths":    func(time.Duration) float64 { return rate * 0.8 },
		"short bursts":   func(now time.Duration) float64 { return burst(now, 30*ms, 100*ms) },
		"bursts":         func(now time.Duration) float64 { return burst(now, 100*ms, 330*ms) },
		"long bursts":    func(now time.Duration) float64 { return burst(now, 500*ms, 700*ms) },
		"seldom, little": func(now time.Duration) float64 { return burst(now, 5*ms, 1500*ms) },
	} {
		for _, loss := range []float64{0, 0.01} {
			for _, delay := range []time.Duration{0, 30 * ms} {
				for _, seed := range []uint64{1, 13, 16, 18} { // in the later ones five packets of eighty are lost at once
					s := newTrial(rate, 64e3, loss, delay, rate)
					s.rng = rand.New(rand.NewPCG(seed, 2))
					s.want = want
					s.run(30 * time.Second)
					s.within(t, fmt.Sprintf("%s, loss %v, delay %v, seed %d", name, loss, delay, seed), rate, 0)
					s.want = func(time.Duration) float64 { return 1e12 }
					s.run(2 * time.Second)
					s.within(t, fmt.Sprintf("%s, then all, seed %d", name, seed), rate, 0)
				}
			}
		}
	}
}

func burst(now, long, every time.Duration) float64 {
	if now%every < long {
		return 1e12
	}
	return 0
}

// TestSlowerUnderBursts: demand too uneven to compare moments shows it too.
func TestSlowerUnderBursts(t *testing.T) {
	s := newTrial(20e6, 64e3, 0, 5*ms, 20e6)
	s.want = func(now time.Duration) float64 { return burst(now, 100*ms, 250*ms) }
	s.run(5 * time.Second)
	s.rate = 5e6
	s.run(5 * time.Second)
	if bits, _ := s.e.Found(); bits > 8e6 || bits < 3e6 {
		t.Errorf("it has found %.2f Mb/s of 5", float64(bits)/1e6)
	}
}

// TestOutage: a line that carries nothing for a while is not a slow one, and is as
// fast as before when it is back.
func TestOutage(t *testing.T) {
	for _, away := range []time.Duration{100 * ms, 300 * ms, time.Second, 3 * time.Second} {
		s := newTrial(50e6, 64e3, 0, 5*ms, 0)
		s.run(5 * time.Second)
		s.rate = 0
		s.run(away)
		if least := s.e.Pace(); away <= 300*ms && least < 50e6/8 {
			t.Errorf("after %v without a line the pace is %d", away, least)
		}
		s.rate = 50e6
		s.run(5 * time.Second)
		s.within(t, fmt.Sprintf("%v without a line", away), 50e6, 0)
	}
}

// TestStandstill: a line that stands still for a moment, with next to nothing getting through,
// and is slower afterwards is not taken for next to nothing, whatever was being measured.
func TestStandstill(t *testing.T) {
	for _, still := range []time.Duration{60 * ms, 100 * ms, 160 * ms} {
		for at := range 25 {
			s := newTrial(20e6, 64e3, 0, 5*ms, 0)
			s.run(5*time.Second + time.Duration(at)*50*ms)
			s.rate = 20e3
			s.run(still)
			s.rate = 8e6
			s.run(100 * ms)
			if least := s.e.Pace(); least < 8e6/5 {
				t.Errorf("after %v, at %d ms, the pace is %d", still, 50*at, least)
			}
			s.run(5 * time.Second)
			s.within(t, fmt.Sprintf("%v without a line", still), 8e6, 0)
		}
	}
}

// TestOthers: what others take is not there; when they go it is.
func TestOthers(t *testing.T) {
	s := newTrial(20e6, 64e3, 0, 5*ms, 0)
	s.run(4 * time.Second)
	s.others = func(time.Duration) float64 { return 8e6 }
	s.run(5 * time.Second)
	if bits, _ := s.e.Found(); float64(bits) < 0.8*12e6 || float64(bits) > 1.15*12e6 {
		t.Errorf("beside 8 Mb/s of 20 it has found %.2f", float64(bits)/1e6)
	}
	s.run(10 * time.Second)
	if lost := s.dropped / s.offered; lost > 0.01 {
		t.Errorf("beside others %.4f is lost", lost)
	}
	s.others = func(time.Duration) float64 { return 0 }
	s.run(4 * time.Second)
	s.within(t, "alone again", 20e6, 0)
}

// TestKnown: what was known is where it begins, and is not called measured before
// it is.
func TestKnown(t *testing.T) {
	e := NewEstimator(50 * mbit)
	if bits, age := e.Found(); bits != 50*mbit || age != 0 || e.Pace() != int64(50*mbit*cruising) {
		t.Errorf("it begins with %d, %v, pace %d", bits, age, e.Pace())
	}
	if e := NewEstimator(0); e.Pace() != FirstRate {
		t.Errorf("it begins with a pace of %d", e.Pace())
	}
	s := newTrial(50e6, 64e3, 0, 5*ms, 50*mbit)
	s.run(3 * time.Second)
	s.within(t, "known", 50e6, 0)
	if _, age := s.e.Found(); age <= 0 || age > 2*time.Second {
		t.Errorf("it was measured %v ago", age)
	}
}

// TestBusyHost: where arrivals are read up to 50 ms late, again and again, the rate is
// found less exactly, and nothing runs away.
func TestBusyHost(t *testing.T) {
	for _, rate := range []float64{8e6, 20e6, 100e6} {
		s := newTrial(rate, 64e3, 0, 5*ms, 0)
		s.stall, s.often = 50*ms, 0.01
		s.run(4 * time.Second)
		for range 20 {
			s.run(2 * time.Second)
			s.within(t, "read late", rate, 0.16)
		}
		s.run(10 * time.Second)
		if lost := s.dropped / s.offered; lost > 0.01 {
			t.Errorf("at %.0f Mb/s the queue drops %.4f", rate/1e6, lost)
		}
	}
}

// TestFarTooHigh: where the pace is far above the link, and senders keep to the link
// by themselves, losing a little as TCP does, the rate comes down all the same.
func TestFarTooHigh(t *testing.T) {
	for _, tc := range []struct {
		loss  float64
		known int64
	}{{0, 60e6}, {0.005, 60e6}, {0, 0}, {0.005, 0}} { // 0: the start ends too high
		s := newTrial(20e6, 64e3, tc.loss, 5*ms, tc.known)
		rate, was := 5e6, 0.0
		s.want = func(now time.Duration) float64 {
			if now%(10*ms) == 0 {
				if rate *= 1.02; s.dropped > was {
					rate *= 0.7
				}
				was = s.dropped
			}
			return rate
		}
		s.run(8 * time.Second)
		if bits, _ := s.e.Found(); bits > 24e6 || bits < 16e6 {
			t.Errorf("loss %v, known %d: it has found %.2f Mb/s of 20", tc.loss, tc.known, float64(bits)/1e6)
		}
	}
}
