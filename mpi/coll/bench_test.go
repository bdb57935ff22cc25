package coll

import (
	"fmt"
	"testing"
)

// BenchmarkBuild is what a caller that keeps no schedules pays for each call.
func BenchmarkBuild(b *testing.B) {
	for _, s := range []shape{shapes(8)[1], sites()[1], shapes(64)[6], sited("4x256", 1024, func(r int) int { return r / 256 })} {
		n := max(len(s.site), 1)
		for _, c := range []Collective{OpBarrier, OpBcast, OpAllreduce, OpAllgather, OpAlltoall} {
			for _, m := range []int{8, 1 << 20} {
				if c == OpBarrier && m > 8 {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%d", s.name, c, m), func(b *testing.B) {
					b.ReportAllocs()
					t := s.topo(1, n)
					for b.Loop() {
						if _, err := Build(c, "", t, Args{Count: m / 8, Elem: 8, Commutes: true}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
