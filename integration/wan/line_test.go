package wan

import (
	"math"
	"testing"
	"time"
)

func TestLineDue(t *testing.T) {
	const mbit = 1_000_000
	type frame struct {
		at   time.Duration
		size int
		due  time.Duration
		fate fate
	}
	ms := func(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }
	tests := []struct {
		name   string
		pipe   Pipe
		frames []frame
	}{
		{"plain", Pipe{}, []frame{{ms(1), 1500, ms(1), pass}}},
		{"delay", Pipe{Delay: ms(10)}, []frame{{ms(1), 1500, ms(11), pass}, {ms(2), 60, ms(12), pass}}},
		{"rate spaces frames", Pipe{Rate: 8 * mbit}, []frame{
			{0, 1000, ms(1), pass},
			{0, 1000, ms(2), pass},
			{ms(5), 1000, ms(6), pass},
		}},
		{"queue is drop-tail and drains", Pipe{Rate: 8 * mbit, Queue: 2000}, []frame{
			{0, 1000, ms(1), pass},
			{0, 1000, ms(2), pass},
			{0, 1000, 0, dropQueue},
			{ms(1), 1000, ms(3), pass},
			{ms(1), 1000, 0, dropQueue},
		}},
		{"black hole counts the IP packet", Pipe{BlackHole: 1280}, []frame{
			{0, 1280 + ethHeader, 0, pass},
			{0, 1281 + ethHeader, 0, dropBlackHole},
		}},
		{"certain loss", Pipe{Loss: 1}, []frame{{0, 60, 0, dropLoss}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLine(tt.pipe)
			for i, f := range tt.frames {
				due, fate := l.offer(f.at, f.size)
				if due != f.due || fate != f.fate {
					t.Errorf("frame %d: got due %v, fate %d; want %v, %d", i, due, fate, f.due, f.fate)
				}
			}
		})
	}
}

func TestLineNeverReorders(t *testing.T) {
	l := newLine(Pipe{Delay: 20 * time.Millisecond})
	first, _ := l.offer(0, 100)
	l.set(Pipe{Delay: time.Millisecond})
	if second, _ := l.offer(time.Microsecond, 100); second < first {
		t.Errorf("a frame after the delay shrank is due at %v, before its predecessor at %v", second, first)
	}
}

func TestLineLossIsSeeded(t *testing.T) {
	const n, loss = 20_000, 0.05
	run := func(seed uint64) (lost int, which uint64) {
		l := newLine(Pipe{Loss: loss, Seed: seed})
		for i := range n {
			if _, f := l.offer(time.Duration(i), 100); f == dropLoss {
				lost++
				which = which*31 + uint64(i)
			}
		}
		return lost, which
	}
	lost, which := run(7)
	if got := float64(lost) / n; math.Abs(got-loss) > 0.01 {
		t.Errorf("lost %.3f of the frames, want %.3f", got, loss)
	}
	if _, again := run(7); again != which {
		t.Error("the same seed lost other frames")
	}
	if _, other := run(8); other == which {
		t.Error("another seed lost the same frames")
	}
}

func TestLinkValidate(t *testing.T) {
	for _, bad := range []Pipe{
		{Delay: -1}, {Delay: time.Minute}, {Rate: -5}, {Rate: 10}, {Queue: -1}, {Loss: 1.5}, {Loss: math.NaN()}, {BlackHole: -1},
	} {
		if err := (Link{Down: bad}).Validate(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if err := Symmetric(Pipe{Delay: time.Millisecond, Rate: 1e9, Loss: 0.1}).Validate(); err != nil {
		t.Error(err)
	}
	if !(Link{}).IsPlain() || Symmetric(Pipe{Delay: 1}).IsPlain() {
		t.Error("IsPlain does not tell plain links from shaped ones")
	}
}
