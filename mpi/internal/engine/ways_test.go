package engine

import (
	"testing"
	"time"
)

// TestWays: the faster way is found, whichever it is, kept though one message is held
// up, and left when it becomes the slower one.
func TestWays(t *testing.T) {
	for _, fast := range []way{bySending, byReading} {
		var w ways
		took := func(by way) time.Duration {
			if by == fast {
				return 100 * time.Microsecond
			}
			return 120 * time.Microsecond
		}
		run := func(n int) (right int) {
			for range n {
				by := w.prefer(1 << 20)
				w.note(by, 1<<20, took(by))
				if by == fast {
					right++
				}
			}
			return right
		}
		run(2 * tryWays)
		if right := run(10 * retryWays); right != 10*(retryWays-1) {
			t.Errorf("way %d is the faster one, and was taken by %d of %d", fast, right, 10*retryWays)
		}
		w.note(fast, 1<<20, time.Second)
		if right := run(retryWays); right < retryWays/2 {
			t.Errorf("after one was held up, way %d was taken by %d of %d", fast, right, retryWays)
		}
		fast = bySending + byReading - fast
		run(20 * retryWays)
		if right := run(retryWays); right < retryWays-2 {
			t.Errorf("way %d has become the faster one, and was taken by %d of %d", fast, right, retryWays)
		}
		if by := w.prefer(64 << 10); by != bySending {
			t.Errorf("of another size nothing is known, and it is way %d", by)
		}
	}
}
