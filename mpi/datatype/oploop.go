package datatype

type ints interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type reals interface{ ints | float32 | float64 }

type numbers interface{ reals | complex64 | complex128 }

// The loops below combine eight values a turn through array pointers, which
// rids them of bounds checks: one load, one operation and one store a value.
// Both slices have the same length. One loop per operation, because a call per
// value would cost more than the operation.

func sumLoop[T numbers](in, inout []T) {
	for len(in) >= 8 && len(inout) >= 8 {
		a, b := (*[8]T)(in), (*[8]T)(inout)
		b[0] = a[0] + b[0]
		b[1] = a[1] + b[1]
		b[2] = a[2] + b[2]
		b[3] = a[3] + b[3]
		b[4] = a[4] + b[4]
		b[5] = a[5] + b[5]
		b[6] = a[6] + b[6]
		b[7] = a[7] + b[7]
		in, inout = in[8:], inout[8:]
	}
	for i, v := range in {
		inout[i] = v + inout[i]
	}
}

func prodLoop[T numbers](in, inout []T) {
	for len(in) >= 8 && len(inout) >= 8 {
		a, b := (*[8]T)(in), (*[8]T)(inout)
		b[0] = a[0] * b[0]
		b[1] = a[1] * b[1]
		b[2] = a[2] * b[2]
		b[3] = a[3] * b[3]
		b[4] = a[4] * b[4]
		b[5] = a[5] * b[5]
		b[6] = a[6] * b[6]
		b[7] = a[7] * b[7]
		in, inout = in[8:], inout[8:]
	}
	for i, v := range in {
		inout[i] = v * inout[i]
	}
}

func minLoop[T reals](in, inout []T) {
	for len(in) >= 4 && len(inout) >= 4 {
		a, b := (*[4]T)(in), (*[4]T)(inout)
		b[0] = min(a[0], b[0])
		b[1] = min(a[1], b[1])
		b[2] = min(a[2], b[2])
		b[3] = min(a[3], b[3])
		in, inout = in[4:], inout[4:]
	}
	for i, v := range in {
		inout[i] = min(v, inout[i])
	}
}

func maxLoop[T reals](in, inout []T) {
	for len(in) >= 4 && len(inout) >= 4 {
		a, b := (*[4]T)(in), (*[4]T)(inout)
		b[0] = max(a[0], b[0])
		b[1] = max(a[1], b[1])
		b[2] = max(a[2], b[2])
		b[3] = max(a[3], b[3])
		in, inout = in[4:], inout[4:]
	}
	for i, v := range in {
		inout[i] = max(v, inout[i])
	}
}

// truth is 1 for true, without a branch.
func truth[T ints](v bool) T {
	var t T
	if v {
		t = 1
	}
	return t
}

func landLoop[T ints](in, inout []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] = truth[T](v != 0) & truth[T](inout[i] != 0)
	}
}

func lorLoop[T ints](in, inout []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] = truth[T](v|inout[i] != 0)
	}
}

func lxorLoop[T ints](in, inout []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] = truth[T](v != 0) ^ truth[T](inout[i] != 0)
	}
}

// words makes a kernel for elements of T of a loop over 64-bit words, which
// combines several small elements at once, and one for the elements that are left.
func words[T ints](wide func(in, inout []uint64), narrow func(in, inout []T)) Kernel {
	most, rest := aligned(wide), aligned(narrow)
	return func(in, inout []byte) {
		n := min(len(in), len(inout)) &^ 7
		most(in[:n], inout[:n])
		rest(in[n:], inout[n:])
	}
}

func andLoop[T ints](in, inout []T) {
	for len(in) >= 4 && len(inout) >= 4 {
		a, b := (*[4]T)(in), (*[4]T)(inout)
		b[0] &= a[0]
		b[1] &= a[1]
		b[2] &= a[2]
		b[3] &= a[3]
		in, inout = in[4:], inout[4:]
	}
	for i, v := range in {
		inout[i] &= v
	}
}

func orLoop[T ints](in, inout []T) {
	for len(in) >= 4 && len(inout) >= 4 {
		a, b := (*[4]T)(in), (*[4]T)(inout)
		b[0] |= a[0]
		b[1] |= a[1]
		b[2] |= a[2]
		b[3] |= a[3]
		in, inout = in[4:], inout[4:]
	}
	for i, v := range in {
		inout[i] |= v
	}
}

func xorLoop[T ints](in, inout []T) {
	for len(in) >= 4 && len(inout) >= 4 {
		a, b := (*[4]T)(in), (*[4]T)(inout)
		b[0] ^= a[0]
		b[1] ^= a[1]
		b[2] ^= a[2]
		b[3] ^= a[3]
		in, inout = in[4:], inout[4:]
	}
	for i, v := range in {
		inout[i] ^= v
	}
}

// sum8 and sum16 add the 8- and 16-bit integers of a word, signed or not, in
// either byte order.
func sum8(in, inout []uint64)  { sumLanes(in, inout, tops8) }
func sum16(in, inout []uint64) { sumLanes(in, inout, 0x8000800080008000) }

// sumLanes adds several integers in one word: the top bit of each is kept out of
// the addition, so that nothing is carried into its neighbour, and then added
// without carry.
func sumLanes(in, inout []uint64, top uint64) {
	inout = inout[:len(in)]
	for i, a := range in {
		b := inout[i]
		inout[i] = (a&^top + b&^top) ^ (a^b)&top
	}
}

// tops8 are the top bits of the eight 8-bit integers in a word.
const tops8 = 0x8080808080808080

// extremesAtOnce is how many words max8 and min8 are given at a time: Go's scheduler
// cannot stop them where they are in assembly.
const extremesAtOnce = 64 << 10

// extremes8 makes a kernel of max8 or min8: signs are tops8 where the integers are
// signed, which makes unsigned ones of them, in the same order.
func extremes8[T ints](wide func(in, inout []uint64, signs uint64), signs uint64, narrow func(in, inout []T)) Kernel {
	return words(func(in, inout []uint64) {
		for len(in) > 0 {
			n := min(len(in), extremesAtOnce)
			wide(in[:n], inout[:n], signs)
			in, inout = in[n:], inout[n:]
		}
	}, narrow)
}
