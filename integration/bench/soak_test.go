package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseSoak(t *testing.T) {
	var out strings.Builder
	for i := range soakLines - 1 {
		fmt.Fprintf(&out, "soak %d %d.5 %d 20480 6 39\n", 5*(i+1), i, 1024*(i+1))
	}
	if _, err := parseSoak(out.String()); err == nil {
		t.Error("a soak that has not ended is one")
	}
	out.WriteString("soaked 100 82000000 42.4\n")
	s, err := parseSoak(out.String())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"here", "100", "0.08", "42", "4.0 / 20.0", "20.0 / 20.0", "6 / 6", "39 / 39"}
	if got := s.row("here"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := parseSoak("soaked 100 82000000 42.4\n"); err == nil {
		t.Error("a soak without marks is one")
	}
}
