package main

import (
	"testing"
	"time"
)

// TestBucket: tokens gather by time, and no more than a late timer needs.
func TestBucket(t *testing.T) {
	now := time.Unix(1, 0)
	b := &bucket{rate: 1e6, last: now}
	for _, x := range []struct {
		after time.Duration
		spent float64
		want  float64
	}{
		{time.Millisecond, 0, 1000},
		{2 * time.Millisecond, 1500, 1500},
		{time.Second, 0, 1e6 * late.Seconds()},
		{0, 11000, -1000},
		{time.Millisecond, 0, 0},
	} {
		now = now.Add(x.after)
		b.fill(now)
		if b.tokens -= x.spent; b.tokens < x.want-1e-6 || b.tokens > x.want+1e-6 {
			t.Errorf("after %v there are %v tokens, want %v", x.after, b.tokens, x.want)
		}
	}
}
