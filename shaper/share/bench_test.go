package share

import (
	"fmt"
	"testing"
)

// BenchmarkLoneSender is the cost of one node's millisecond in a site where one
// node borrows from all others, with the notices of all.
func BenchmarkLoneSender(b *testing.B) {
	for _, n := range []int{4, 32} {
		b.Run(fmt.Sprintf("%d nodes", n), func(b *testing.B) {
			s := newSite(b, n, 1, map[Site]int64{"b": 100 * mbit})
			s.calm = never
			s.want(0, "b", 100*mbit)
			s.run(20 * ms)
			before := s.sent
			b.ReportAllocs()
			for b.Loop() {
				s.run(s.now + ms)
			}
			b.ReportMetric(float64(s.sent-before)/float64(b.N), "notices/ms")
		})
	}
}
