package estimate

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestMessagesOnTheWire(t *testing.T) {
	if got, want := hex.EncodeToString(AppendTally(nil, 258*time.Microsecond, 772)), "21"+"0000000000000102"+"0000000000000304"; got != want {
		t.Errorf("a tally is %s, want %s", got, want)
	}
	r := told{at: 258 * time.Microsecond, pools: []poolTold{{name: 0xa1b2c3d4, lag: 5 * time.Millisecond, vague: true, counters: counters{1, 2, 3}}}}
	const report = "22" + "01" + "0000000000000102" + "a1b2c3d4" + "0005" + "01" + "00" +
		"0000000000000001" + "0000000000000002" + "0000000000000003"
	if got := hex.EncodeToString(r.appendReport(nil)); got != report {
		t.Errorf("a report is\n%s, want\n%s", got, report)
	}
	v := told{at: 258 * time.Microsecond, pools: []poolTold{{name: 1, pace: 97_000_001, found: 100_000_000, age: 3 * time.Second}, {name: 2, age: -1}}}
	const verdict = "23" + "02" + "0000000000000102" + "00000001" + "00017ae9" + "000186a0" + "00000bb8" +
		"00000002" + "00000000" + "00000000" + "ffffffff"
	if got := hex.EncodeToString(v.appendVerdict(nil)); got != verdict {
		t.Errorf("a verdict is\n%s, want\n%s", got, verdict)
	}
}

func TestMessagesRefused(t *testing.T) {
	mate, far := peer.ID{2}, peer.ID{9}
	tally := AppendTally(nil, time.Second, 5)
	report := told{pools: make([]poolTold, 2)}.appendReport(nil)
	huge := bytes.Clone(tally)
	huge[1] = 0xff
	m := NewMeter(Config{Self: peer.ID{1}, Sent: func(func(peer.ID, string, int64, time.Duration)) {}})
	m.Members([]peer.ID{mate})
	for _, tc := range []struct {
		name     string
		from     peer.ID
		own      bool
		data     []byte
		stranger bool
	}{
		{"empty", mate, true, nil, false},
		{"cut", mate, true, report[:len(report)-1], false},
		{"longer", mate, true, append(bytes.Clone(report), 0), false},
		{"too long", mate, true, make([]byte, MaxMessage+1), false},
		{"a time out of bounds", far, false, huge, false},
		{"a tally where nothing is sent", far, false, tally, true},
		{"a report from another site", far, false, report, true},
		{"a report from nobody", peer.ID{7}, true, report, true},
		{"a report of itself", peer.ID{1}, true, report, true},
	} {
		was := m.Counters().Refused
		err := m.Receive(0, tc.from, tc.own, tc.data)
		if err == nil || errors.Is(err, ErrStranger) != tc.stranger || m.Counters().Refused != was+1 {
			t.Errorf("%s: %v, %+v", tc.name, err, m.Counters())
		}
	}
	if Ours(nil) || Ours([]byte{0x11}) || !Ours(tally) || !Ours(report) {
		t.Error("messages are mistaken for others")
	}
}

// FuzzMessage feeds a Meter what anybody may send: it must not panic, its rates stay
// in bounds and what it says can be read.
func FuzzMessage(f *testing.F) {
	f.Add(AppendTally(nil, time.Second, 1<<40), AppendTally(nil, 2*time.Second, 1<<41), byte(5))
	name := poolName("")
	f.Add(told{at: time.Second, pools: []poolTold{{name: name, counters: counters{1 << 59, 0, 0}}}}.appendReport(nil),
		told{at: 2 * time.Second, pools: []poolTold{{name: name, counters: counters{maxCount, maxCount, maxCount}}}}.appendReport(nil), byte(40))
	f.Add(told{pools: []poolTold{{name: name, pace: 1, found: 1 << 40}}}.appendVerdict(nil), []byte{}, byte(200))
	f.Fuzz(func(t *testing.T, first, second []byte, slots byte) {
		if at, n, err := parseTally(first); err == nil && !bytes.Equal(AppendTally(nil, at, n), first) {
			t.Fatalf("read %x, wrote another", first)
		}
		if kind, msg, err := parseTold(first); err == nil && kind == kindReport && len(msg.appendReport(nil)) != len(first) {
			t.Fatalf("read %x, wrote %d bytes", first, len(msg.appendReport(nil)))
		}
		mate, far := peer.ID{1}, peer.ID{9}
		for _, self := range []peer.ID{{2}, {0}} { // one that does not lead and one that does
			var sent int64
			m := NewMeter(Config{Self: self, Sent: func(yield func(peer.ID, string, int64, time.Duration)) {
				sent += 20_000
				yield(far, "b", sent, time.Millisecond)
			}})
			m.Members([]peer.ID{mate})
			m.Measure([]string{"", "b"}, func(string) int64 { return 0 })
			m.Wake(0)
			now := time.Duration(0)
			for i := range 3 + int(slots) {
				now += Slot
				data := first
				if i%2 == 1 {
					data = second
				}
				_ = m.Receive(now, mate, true, data)
				_ = m.Receive(now, far, false, data)
				out, wake := m.Step(now)
				if len(out) > 3 || wake != 0 && wake <= now {
					t.Fatalf("%d messages, wake %v at %v", len(out), wake, now)
				}
				for _, msg := range out {
					if _, _, err := parseTold(msg.Data); err != nil {
						t.Fatal(err)
					}
				}
				for _, x := range m.Explain(now) {
					if x.Rate < 0 || x.Rate > 2*maxRate*8 || x.Found < 0 {
						t.Fatalf("%+v", x)
					}
				}
			}
		}
	})
}

// TestSeries: a counter told late says what it would have said in time; silence is
// not spread over what came before.
func TestSeries(t *testing.T) {
	var s series
	const skew = time.Hour
	tell := func(at, late time.Duration, got int64) { s.add(at+late, at+skew, counters{got: got}) }
	tell(100*ms, 0, 1000)
	tell(120*ms, 0, 3000)
	tell(140*ms, 15*ms, 5000)
	tell(130*ms, 30*ms, 4000) // old
	tell(500*ms, 0, 9000)
	tell(520*ms, 0, 0) // restarted
	tell(540*ms, 0, 100)
	for at, want := range map[time.Duration]int64{
		50 * ms: 0, 100 * ms: 0, 110 * ms: 1000, 120 * ms: 2000, 130 * ms: 3000, 140 * ms: 4000,
		400 * ms: 4000, 490 * ms: 6000, 500 * ms: 8000, 520 * ms: 8000, 540 * ms: 8100, time.Hour: 8100,
	} {
		if got := s.read(at).got; got != want {
			t.Errorf("at %v it reads %d, want %d", at, got, want)
		}
	}
}

// TestSeriesBegunAnew: after a restart of the other node, whose clock and counters
// begin at 0, what it tells is known at once, and how long it takes is learned anew.
func TestSeriesBegunAnew(t *testing.T) {
	var s series
	tell := func(now, remote time.Duration, got int64) { s.add(now, remote, counters{got: got}) }
	tell(10*time.Second, time.Hour, 5000)
	tell(10*time.Second+20*ms, time.Hour+20*ms, 6000)
	tell(12*time.Second, 100*ms, 0)
	tell(12*time.Second+40*ms, 120*ms, 700) // 20 ms late
	tell(12*time.Second+60*ms, 160*ms, 900)
	for at, want := range map[time.Duration]int64{10*time.Second + 20*ms: 1000, 12*time.Second + 20*ms: 1700, 12*time.Second + 60*ms: 1900} {
		if got := s.read(at).got; got != want {
			t.Errorf("at %v it reads %d, want %d", at, got, want)
		}
	}
}
