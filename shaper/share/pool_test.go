package share

import "testing"

// TestHold: what a borrower wanted counts on for a while, but no more of it than can
// be carried now, and the pool says when that ends.
func TestHold(t *testing.T) {
	const b = 100 * mbit
	for _, tc := range []struct {
		name           string
		capped, usable int64 // when little is wanted; 0: no bound
		want           int64 // little
		able           int64
		rests          bool // its end changes something
	}{
		{"as before", 0, 0, 10 * mbit, b, true},
		{"the receiver allows less", 60 * mbit, 0, 10 * mbit, 60 * mbit, true},
		{"the uplink has less left", 0, 70 * mbit, 10 * mbit, 70 * mbit, true},
		{"the uplink has less left than is wanted", 0, 70 * mbit, 90 * mbit, 70 * mbit, false},
		{"less than the safe share is left", 0, 20 * mbit, 10 * mbit, 10 * mbit, false},
	} {
		p := &pool{capacity: b}
		p.demand(0, b, 1)
		p.refresh(0, 4, 0, false)
		if p.able != b || !p.hungry {
			t.Fatalf("%s: before, %+v", tc.name, p)
		}
		p.capped = tc.capped
		p.demand(ms, tc.want, 1)
		p.refresh(ms, 4, tc.usable, false)
		if p.able != tc.able {
			t.Errorf("%s: able is %d, want %d", tc.name, p.able, tc.able)
		}
		if at := p.rests(ms); (at == linger) != tc.rests {
			t.Errorf("%s: it changes by itself at %v, want at %v: %v", tc.name, at, linger, tc.rests)
		}
		if p.refresh(linger, 4, tc.usable, false); p.able != min(tc.want, tc.able) {
			t.Errorf("%s: after a while able is %d, want %d", tc.name, p.able, min(tc.want, tc.able))
		}
	}
}

// TestSafe: several nodes leave what nobody paces some room, and not much; one has all.
func TestSafe(t *testing.T) {
	for _, b := range []int64{0, 1, 255, 20 * mbit, 100 * mbit, 1000 * mbit} {
		if got := Safe(b, 1); got != b {
			t.Errorf("of %d one node has %d", b, got)
		}
		for _, n := range []int{2, 3, 4, 64} {
			sum := Safe(b, n) * int64(n)
			if most := b * 997 / 1000; b >= 256 && (sum > most || sum < b*99/100-int64(n)) || sum > b || sum < 0 {
				t.Errorf("of %d %d nodes have %d together", b, n, sum)
			}
		}
	}
}
