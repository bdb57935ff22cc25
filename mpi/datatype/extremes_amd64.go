package datatype

// max8 and min8 keep the greater, or the lesser, of each two 8-bit integers in words,
// unsigned once signs are flipped in each word. inout is as long as in.
//
//go:noescape
func max8(in, inout []uint64, signs uint64)

//go:noescape
func min8(in, inout []uint64, signs uint64)
