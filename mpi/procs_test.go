package mpi

import (
	"strings"
	"testing"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

func TestRecord(t *testing.T) {
	want := record{host: "a1 7f 3/x", site: "alpha & beta", room: room{12, "[fff 0 1]"}, card: "mm1 u=0 k=1"}
	if got, err := parseRecord(want.encode()); err != nil || got != want {
		t.Errorf("%q is read as %+v, %v", want.encode(), got, err)
	}
	for _, s := range []string{"", "a", "a b", "a b card", "a b 3 card", "a b x/y card", "a b -1/y card", "a% b 1/y card", "a b% 1/y card", "a b 1/y% card", "a b 99999/y card", "a b 1/y " + strings.Repeat("c", mostRecord)} {
		if r, err := parseRecord(s); err == nil {
			t.Errorf("%.40q is read as %+v", s, r)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("a1 alpha 2/%5B3%5D mm1 u=0")
	f.Add("a b 0/ ")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseRecord(s)
		if err != nil {
			return
		}
		if again, err := parseRecord(r.encode()); len(r.encode()) <= mostRecord && (err != nil || again != r) {
			t.Errorf("%q is read as %+v, and that as %+v, %v", s, r, again, err)
		}
	})
}

// TestLoads: ranks are counted by the processors that they may run on, which the
// launcher may have divided among them.
func TestLoads(t *testing.T) {
	at := func(host string, processors int, name string) record {
		return record{host: host, room: room{processors, name}, card: host + name}
	}
	var tb table
	tb.init()
	for i, r := range []record{
		at("a", 2, "3"), at("a", 2, "3"), at("a", 2, "3"), at("a", 2, "3"), // four on two
		at("b", 1, "1"), at("b", 1, "2"), // each its own
		at("c", 0, ""), // unknown
	} {
		tb.add(engine.Proc(i), r)
	}
	loads := tb.loads([]engine.Proc{0, 1, 2, 3, 4, 5, 6})
	for p, want := range []load{{4, 2}, {4, 2}, {4, 2}, {4, 2}, {1, 1}, {1, 1}, {1, 0}} {
		if got := loads[tb.places[p].room]; got != want {
			t.Errorf("where process %d is there are %+v, want %+v", p, got, want)
		}
	}
	if got := tb.loads([]engine.Proc{0, 4})[tb.places[0].room]; got != (load{1, 2}) {
		t.Errorf("one of four is %+v", got)
	}
}

func TestProcessors(t *testing.T) {
	r := processors()
	if r.processors < 1 || r.name == "" || strings.Contains(r.name, "/") {
		t.Errorf("this process runs on %+v", r)
	}
}
