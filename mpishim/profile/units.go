package profile

import (
	"fmt"
	"strconv"
)

// size is bytes as people say them, in three digits at most: 1.5 MB.
func size(n uint64) string {
	v, units := float64(n), []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for ; v >= 999.5 && i < len(units)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return strconv.FormatUint(n, 10) + " B"
	}
	return digits(v) + " " + units[i]
}

// digits is a number below 1000 in three digits at most.
func digits(v float64) string {
	prec := 0
	switch {
	case v < 9.995:
		prec = 2
	case v < 99.95:
		prec = 1
	}
	s := strconv.FormatFloat(v, 'f', prec, 64)
	if prec > 0 {
		for s[len(s)-1] == '0' {
			s = s[:len(s)-1]
		}
		if s[len(s)-1] == '.' {
			s = s[:len(s)-1]
		}
	}
	return s
}

// seconds is a time as people say it.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return digits(s*1e6) + " µs"
	case s < 1:
		return digits(s*1e3) + " ms"
	case s < 1000:
		return digits(s) + " s"
	}
	return fmt.Sprintf("%.0f s", s)
}

// count is "1 rank", "2 ranks".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
