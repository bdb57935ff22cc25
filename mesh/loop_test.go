package mesh

import (
	"context"
	"testing"
	"time"
)

// TestAnswersBeforeDeadlines: a loop that comes late, as where every processor is busy,
// looks at all that has come before it counts anything as missing.
func TestAnswersBeforeDeadlines(t *testing.T) {
	m := idleMesh(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.run(ctx) }()
	const came = 100
	woken := make(chan uint64, came)
	m.post(func(now time.Time) {
		for range came {
			m.post(func(time.Time) { woken <- m.wakeups.Load() })
		}
		m.wakeAt(now)
	})
	for i := range came {
		if <-woken > 0 {
			t.Fatalf("a deadline was looked at when %d of %d messages had been", i, came)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
