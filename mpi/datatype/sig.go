package datatype

import (
	"iter"
	"math/bits"
)

// Signature identifies a sequence of basic kinds, whatever the displacements
// (MPI 4.1 section 5.1): two messages may match if their signatures are equal.
// It is comparable, the same on every architecture, and safe to send. Unequal
// sequences have equal signatures with a chance of about 2^-61.
type Signature struct {
	Elems int64  // basic elements
	Hash  uint64 // of their kinds, in order
}

// sig is the hash of a sequence of kinds: the polynomial with the kinds for
// coefficients, modulo the prime 2^61-1. It is run-length compressed by nature:
// the hash of a million repetitions takes twenty squarings.
type sig struct {
	n    int
	hash uint64
	pow  uint64 // sigBase to the n
}

const (
	sigPrime = 1<<61 - 1
	sigBase  = 0x1b873593_cc9e2d51 % sigPrime
)

func mulmod(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return fold((lo & sigPrime) + (lo>>61 | hi<<3)) // 2^61 is 1
}

func fold(x uint64) uint64 {
	x = x&sigPrime + x>>61
	if x >= sigPrime {
		x -= sigPrime
	}
	return x
}

func sigOf(k Kind) sig { return sig{1, uint64(k), sigBase} }

// then is the sequence a followed by b. The zero sig is the empty sequence.
func (a sig) then(b sig) sig {
	if a.n == 0 {
		return b
	}
	if b.n == 0 {
		return a
	}
	return sig{a.n + b.n, fold(mulmod(a.hash, b.pow) + b.hash), mulmod(a.pow, b.pow)}
}

// times is the sequence repeated.
func (a sig) times(n int) sig {
	var out sig
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			out = out.then(a) // repetitions of one sequence commute
		}
		a = a.then(a)
	}
	return out
}

// Signature is that of count items; count ≤ 0 gives the empty one.
func (t *Type) Signature(count int) Signature {
	if t == nil || t.lay.n == nil || count <= 0 {
		return Signature{}
	}
	s := t.lay.n.sig.times(count)
	return Signature{int64(s.n), s.hash}
}

// SignatureRuns yields the kinds of one item in order, run-length compressed:
// each with how often it comes in a row.
func (t *Type) SignatureRuns() iter.Seq2[Kind, int] {
	return func(yield func(Kind, int) bool) {
		last, n := Invalid, 0
		for r := range t.Runs() {
			if r.Kind == last {
				n += r.Count
				continue
			}
			if n > 0 && !yield(last, n) {
				return
			}
			last, n = r.Kind, r.Count
		}
		if n > 0 {
			yield(last, n)
		}
	}
}
