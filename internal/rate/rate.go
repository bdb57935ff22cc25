// Package rate reads and writes rates as people say them: 100Mb/s, 2.5gbit,
// 12.5MB/s. It exists so that every command takes the same ones and every
// message shows them alike. A rate is bits per second in an int64; what it limits
// is its owner's business.
//
// Its errors begin with what was given, not with the package's name: they are shown
// to whoever typed that, behind the name of an option.
package rate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// What a link may be said to carry, in bits per second. Below Min one datagram
// takes longer than a second, and whoever says so has most likely forgotten a
// letter; above Max there are no links.
const (
	Min = 10_000
	Max = 100_000_000_000_000
)

// maxText bounds what Parse looks at, in bytes.
const maxText = 32

// prefixes are decimal ones, as networks count, and binary ones for whoever
// insists. In both cases of letters, since people write mbit.
var prefixes = []struct {
	text string
	of   float64
}{
	{"ki", 1 << 10}, {"mi", 1 << 20}, {"gi", 1 << 30}, {"ti", 1 << 40},
	{"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12},
}

// Parse reads a rate: a decimal number, perhaps k, M, G, T (powers of 1000) or
// Ki, Mi, Gi, Ti (of 1024), and a unit: nothing, b, bit or bits, with /s or ps or
// neither, for bits; B/s or Bps for bytes. Only in b and B does the case of
// letters count. The error is one line; it is one, too, for rates outside Min to
// Max.
func Parse(s string) (int64, error) {
	if len(s) > maxText {
		return 0, fmt.Errorf("%.32q… is too long for a rate; write it as 100Mb/s", s)
	}
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	n, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no rate; write a number and a unit, such as 100Mb/s, 2.5G or 12.5MB/s", s)
	}
	of, err := unit(strings.TrimPrefix(s[end:], " "))
	if err != nil {
		return 0, fmt.Errorf("%q: %w", s, err)
	}
	bits := math.Round(n * of)
	if bits < Min || bits > Max {
		return 0, outside(strconv.Quote(s))
	}
	return int64(bits), nil
}

// unit returns the bits per second that what stands behind a number means.
func unit(s string) (float64, error) {
	of := 1.0
	for _, p := range prefixes {
		if len(s) >= len(p.text) && strings.EqualFold(s[:len(p.text)], p.text) {
			of, s = p.of, s[len(p.text):]
			break
		}
	}
	switch s {
	case "", "b", "b/s", "bps":
		return of, nil
	case "B/s", "Bps":
		return 8 * of, nil
	case "B":
		return 0, fmt.Errorf("a lone B is a size; end it in b/s for bits per second or in B/s for bytes")
	}
	switch strings.ToLower(s) {
	case "bit", "bits", "bit/s", "bits/s", "bitps":
		return of, nil
	}
	return 0, fmt.Errorf("the unit is unknown; end it in b/s for bits per second or in B/s for bytes, after k, M, G or T")
}

// Check says in one line that a rate is outside Min to Max.
func Check(bits int64) error {
	if bits < Min || bits > Max {
		return outside(Format(bits))
	}
	return nil
}

func outside(what string) error {
	return fmt.Errorf("%s is no link's rate; they are from %s to %s", what, Format(Min), Format(Max))
}

// Format writes a rate exactly, with the largest prefix that fits: 2.5Gb/s. Parse
// reads it back.
func Format(bits int64) string {
	n, prefix := float64(bits), ""
	for _, p := range []struct {
		text string
		of   float64
	}{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if math.Abs(n) >= p.of {
			n, prefix = n/p.of, p.text
			break
		}
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + prefix + "b/s"
}
