package main

import (
	"math"
	"strings"
	"testing"
)

// TestAppsThatWrap: ranks whose sum is more than an int holds are too many.
func TestAppsThatWrap(t *testing.T) {
	o := options{N: math.MaxInt, Program: strings.Fields("a : -n 9223372036854775807 b : -n 4 c")}
	if apps, total, err := o.apps(); err == nil {
		t.Errorf("%d programs, %d ranks in all", len(apps), total)
	}
}
