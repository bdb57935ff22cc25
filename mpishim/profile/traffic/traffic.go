// Package traffic says what a matrix of bytes between ranks means: which of the known
// communication patterns it is, and where ranks had better be so that less crosses
// from site to site.
//
// It exists because both are decisions that people take from a picture, by rules that
// can be written down, and because pacing by pattern (GridMPI's table: all-to-all and
// LU want B/N, CG B/(N/2), BT and SP B/(2·sqrt(2N))) needs the pattern's name. Every
// answer comes with its reason.
//
// It does no I/O, knows no nodes, only numbers of them, and takes a matrix as it is:
// a program that does several things one after the other is seen as their sum.
package traffic

import (
	"cmp"
	"slices"
)

// Matrix is how many bytes each of N ranks sends to each.
type Matrix struct {
	N int
	v []uint64
}

// NewMatrix returns one of zeros.
func NewMatrix(n int) *Matrix { return &Matrix{n, make([]uint64, n*n)} }

// At returns what rank from sends to rank to.
func (m *Matrix) At(from, to int) uint64 { return m.v[from*m.N+to] }

// Add adds to that.
func (m *Matrix) Add(from, to int, bytes uint64) { m.v[from*m.N+to] += bytes }

// Total is the sum over different ranks: what one sends to itself goes nowhere.
func (m *Matrix) Total() (sum uint64) {
	for i := range m.N {
		for j := range m.N {
			if i != j {
				sum += m.At(i, j)
			}
		}
	}
	return sum
}

// Fold adds up by groups: of[rank] is the rank's group, of groups in all.
func (m *Matrix) Fold(of []int, groups int) *Matrix {
	f := NewMatrix(groups)
	for i := range m.N {
		for j := range m.N {
			if i != j {
				f.Add(of[i], of[j], m.At(i, j))
			}
		}
	}
	return f
}

// used counts the pairs that send anything.
func (m *Matrix) used() (n int) {
	for i := range m.N {
		for j := range m.N {
			if i != j && m.At(i, j) > 0 {
				n++
			}
		}
	}
	return n
}

// edge is one rank's traffic to another.
type edge struct {
	from, to int
	bytes    uint64
}

// Heavy edges are the fewest that carry this share of all, and those that are at
// least half as heavy as the lightest of them: the rest is noise.
const (
	heavyShare = 0.9
	almost     = 0.5
)

// heavy returns the edges that make the pattern, heaviest first.
func (m *Matrix) heavy() (list []edge) {
	var total uint64
	for i := range m.N {
		for j := range m.N {
			if n := m.At(i, j); i != j && n > 0 {
				list = append(list, edge{i, j, n})
				total += n
			}
		}
	}
	slices.SortFunc(list, func(a, b edge) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	var sum, last uint64
	for i, e := range list {
		if float64(sum) >= heavyShare*float64(total) && float64(e.bytes) < almost*float64(last) {
			return list[:i]
		}
		if float64(sum) < heavyShare*float64(total) {
			last = e.bytes
		}
		sum += e.bytes
	}
	return list
}
