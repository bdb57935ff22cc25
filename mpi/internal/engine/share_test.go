package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simLink is a link in simulated time.
type simLink struct {
	gauge
	speed float64       // bytes a second
	delay time.Duration // one way
	free  time.Duration // when it has sent what it was given
	took  int           // bytes of the last message
}

// simAck is an acknowledgement under way.
type simAck struct {
	at   time.Duration
	link int
	n    int
}

// simSend sends a message of so many bytes over links and returns how long it takes
// until all of it is there.
func simSend(links []*simLink, now time.Duration, bytes int) (took, end time.Duration) {
	var acks []simAck
	var last time.Duration
	begun := now
	for _, l := range links {
		l.took = 0
	}
	for left := bytes; left > 0 || len(acks) > 0; {
		for left > 0 {
			lanes := make([]lane, len(links))
			for i, l := range links {
				lanes[i] = lane{&l.gauge, true}
			}
			n := pieceOf(left, len(links))
			i := pick(lanes, n, left)
			if i < 0 {
				break
			}
			l := links[i]
			l.sent(now, n)
			l.free = max(l.free, now) + time.Duration(float64(n)/l.speed*float64(time.Second))
			acks = append(acks, simAck{l.free + 2*l.delay, i, n})
			last = max(last, l.free+l.delay)
			left -= n
			l.took += n
		}
		k := 0
		for i := range acks {
			if acks[i].at < acks[k].at {
				k = i
			}
		}
		a := acks[k]
		acks = slices.Delete(acks, k, k+1)
		now = a.at
		if !links[a.link].got(now, a.n) {
			panic("acknowledged too much")
		}
	}
	return last - begun, now
}

// alone is how long a message takes over one link.
func (l *simLink) alone(bytes int) time.Duration {
	return l.delay + time.Duration(float64(bytes)/l.speed*float64(time.Second))
}

// TestStripeTime holds striping to its promise: no size takes longer than over the
// better link, and large messages gain what the links are worth together.
func TestStripeTime(t *testing.T) {
	const mbit = 1e6 / 8
	for _, c := range []struct {
		name  string
		links []simLink
		gain  float64 // at 8 MiB, at least
	}{
		{"two alike", []simLink{{speed: 100 * mbit, delay: 5 * time.Millisecond}, {speed: 100 * mbit, delay: 5 * time.Millisecond}}, 1.9},
		{"two and one", []simLink{{speed: 200 * mbit, delay: 5 * time.Millisecond}, {speed: 100 * mbit, delay: 5 * time.Millisecond}}, 1.4},
		{"one far", []simLink{{speed: 100 * mbit, delay: 5 * time.Millisecond}, {speed: 100 * mbit, delay: 40 * time.Millisecond}}, 1.6},
		{"one slow", []simLink{{speed: 100 * mbit, delay: 5 * time.Millisecond}, {speed: mbit, delay: 5 * time.Millisecond}}, 0.99},
		{"four", []simLink{{speed: 100 * mbit, delay: 5 * time.Millisecond}, {speed: 100 * mbit, delay: 5 * time.Millisecond}, {speed: 100 * mbit, delay: 5 * time.Millisecond}, {speed: 100 * mbit, delay: 5 * time.Millisecond}}, 3.6},
		{"fast LAN", []simLink{{speed: 10000 * mbit, delay: 50 * time.Microsecond}, {speed: 10000 * mbit, delay: 50 * time.Microsecond}}, 1.7},
		{"long and fat", []simLink{{speed: 1000 * mbit, delay: 50 * time.Millisecond}, {speed: 1000 * mbit, delay: 50 * time.Millisecond}}, 1.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var links []*simLink
			for _, l := range c.links {
				l.near = 2 * l.delay
				links = append(links, &l)
			}
			best := func(n int) time.Duration {
				return min(links[0].alone(n), links[1].alone(n))
			}
			now := time.Second
			for range 20 { // what they are worth is found out by using them
				_, now = simSend(links, now, 8<<20)
			}
			for n := 64 << 10; n <= 8<<20; n *= 2 {
				var took time.Duration
				for range 5 {
					took, now = simSend(links, now, n)
				}
				gain := best(n).Seconds() / took.Seconds()
				t.Logf("%d bytes: gain %.2f, %.0f %% by the first", n, gain, float64(links[0].took)*100/float64(n))
				if gain < 0.97 {
					t.Errorf("%d bytes: took %v, over the better link alone %v", n, took, best(n))
				}
				if n == 8<<20 && gain < c.gain {
					t.Errorf("%d bytes: gain %.2f, want %.2f", n, gain, c.gain)
				}
			}
		})
	}
}

// TestGaugeNotices has a link become slow: it gets less.
func TestGaugeNotices(t *testing.T) {
	a := &simLink{speed: 12e6, delay: 5 * time.Millisecond}
	b := &simLink{speed: 12e6, delay: 5 * time.Millisecond}
	links := []*simLink{a, b}
	a.near, b.near = 10*time.Millisecond, 10*time.Millisecond
	now := time.Second
	for range 10 {
		_, now = simSend(links, now, 8<<20)
	}
	even := b.took
	b.speed /= 10
	for range 10 {
		_, now = simSend(links, now, 8<<20)
	}
	if b.took > even/3 {
		t.Errorf("a link that has become ten times slower gets %d bytes of 8 MiB, before %d", b.took, even)
	}
	b.speed *= 10
	for range 30 {
		_, now = simSend(links, now, 8<<20)
	}
	if b.took < even/2 {
		t.Errorf("a link that has become fast again gets %d bytes of 8 MiB, before %d", b.took, even)
	}
}

// TestPickEnds gives pick whatever there may be: it must never leave a message
// waiting for an acknowledgement that will not come.
func TestPickEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		lanes := make([]lane, 1+rng.IntN(5))
		expected := false // something will make it look again
		for i := range lanes {
			g := &gauge{near: time.Duration(rng.IntN(100)) * time.Millisecond, rate: float64(rng.IntN(3)) * rng.Float64() * 1e7}
			if rng.IntN(2) == 0 {
				g.under = rng.IntN(1 << 20)
			}
			lanes[i] = lane{g, rng.IntN(3) > 0}
			expected = expected || g.under > 0 || !lanes[i].open
		}
		left := 1 + rng.IntN(1<<22)
		if pick(lanes, pieceOf(left, len(lanes)), left) < 0 && !expected {
			t.Fatalf("nobody takes %d bytes and nothing is awaited: %+v", left, lanes)
		}
	}
}

func TestGaugeRefuses(t *testing.T) {
	g := &gauge{}
	g.sent(0, 10)
	if g.got(time.Millisecond, 11) {
		t.Error("more was acknowledged than sent")
	}
}
