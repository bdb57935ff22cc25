//go:build !amd64

package datatype

// max8 and min8 keep the greater, or the lesser, of each two 8-bit integers in words,
// unsigned once signs are flipped in each word. inout is as long as in.
func max8(in, inout []uint64, signs uint64) {
	inout = inout[:len(in)]
	for i, a := range in {
		b := inout[i]
		inout[i] = b ^ (a^b)&atLeast8(a^signs, b^signs)
	}
}

func min8(in, inout []uint64, signs uint64) {
	inout = inout[:len(in)]
	for i, a := range in {
		b := inout[i]
		inout[i] = b ^ (a^b)&atLeast8(b^signs, a^signs)
	}
}

// atLeast8 sets all bits of each unsigned 8-bit integer of a word that is no less in x
// than in y. Top bits decide where they differ; otherwise the rest is subtracted, from
// which a top bit that is set keeps the neighbour.
func atLeast8(x, y uint64) uint64 {
	differ, rest := x^y, (x|tops8)-(y&^tops8)
	t := (x&differ | rest&^differ) & tops8
	return t - t>>7 | t
}
