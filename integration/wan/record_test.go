package wan

import (
	"slices"
	"testing"
	"time"
)

// TestRecord: what comes, what is dropped and what waits is told by ticks from the first
// frame on, and what comes after the last tick is not.
func TestRecord(t *testing.T) {
	l, r := newLine(Pipe{Rate: 80_000_000, Queue: 2500}), newRecorder(4) // 1000 bytes in a tick
	began := 7 * time.Millisecond
	for _, at := range []time.Duration{0, 0, 0, Tick + Tick/2, 9 * Tick} {
		_, fate := l.offer(began+at, 1000)
		r.note(l, began+at, 1000, fate)
	}
	got := r.read()
	for _, x := range []struct {
		name      string
		got, want []uint32
	}{
		{"arrived", got.Arrived, []uint32{3000, 1000, 0, 0}},
		{"dropped", got.Dropped, []uint32{1000, 0, 0, 0}},
		{"queue", got.Queue, []uint32{2000, 1500, 0, 0}},
	} {
		if !slices.Equal(x.got, x.want) {
			t.Errorf("%s: %d, want %d", x.name, x.got, x.want)
		}
	}
}

func TestRecordBounds(t *testing.T) {
	e := &Emulator{up: new(direction), down: new(direction)}
	if got := e.Records(); got.Up.Arrived != nil {
		t.Error("something is recorded that nobody asked for")
	}
	for _, d := range []time.Duration{0, -time.Second, MaxRecord + Tick} {
		if e.Record(d) == nil {
			t.Errorf("%v is recorded", d)
		}
	}
	if err := e.Record(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := len(e.Records().Down.Queue); got != 10 {
		t.Errorf("a millisecond has %d ticks, want 10", got)
	}
}
