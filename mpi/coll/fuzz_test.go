package coll

import (
	"math/rand/v2"
	"testing"
)

// FuzzSchedules takes any topology, operation and arguments: all algorithms that
// say they apply have to agree with the model in whatever order messages go.
func FuzzSchedules(f *testing.F) {
	f.Add(uint8(0), uint8(3), uint16(1), uint8(0), []byte{0, 1, 0}, uint64(1))
	f.Add(uint8(12), uint8(9), uint16(33), uint8(3), []byte{1, 1, 9, 9, 1, 2, 3}, uint64(7))
	f.Add(uint8(13), uint8(17), uint16(5000), uint8(2), []byte{0, 16, 0, 16, 32}, uint64(9))
	f.Fuzz(func(t *testing.T, op, ranks uint8, count uint16, flags uint8, places []byte, seed uint64) {
		c := global()[int(op)%len(global())]
		n := int(ranks)%20 + 1
		s := shape{name: "fuzz"}
		for r := range n {
			p := byte(0)
			if len(places) > 0 {
				p = places[r%len(places)] + byte(r/len(places))
			}
			s.host, s.site = append(s.host, int32(p&15)), append(s.site, int32(p>>4&3))
		}
		if flags&4 != 0 {
			s.host = nil
		}
		_, combines, inPlace := kinds(c)
		a := Args{Count: int(count) % 6000, Elem: 8, Commutes: true, Root: int(seed % uint64(n)), InPlace: inPlace && flags&1 != 0}
		if combines && flags&2 != 0 {
			a.Elem, a.Commutes = 16, false
		}
		if n > 8 {
			a.Count %= 300
		}
		try(t, c, &s, n, a, rand.New(rand.NewPCG(seed, 0)))
	})
}
