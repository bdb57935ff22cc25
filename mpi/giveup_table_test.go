package mpi

import (
	"errors"
	"testing"

	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// TestNoticesForgotten: notices that nobody takes do not keep later ones from being
// remembered.
func TestNoticesForgotten(t *testing.T) {
	w := &World{}
	a := &w.runs
	a.makings.Add(1)
	o := &circle{procs: []engine.Proc{0, 1, 2}}
	for o.tag = range int32(3*mostGiven + 5) {
		hdr := o.notice(2)
		w.gaveUp(nil, 1, &hdr, nil)
		if len(a.given)+len(a.older) > mostGiven {
			t.Fatalf("%d notices are remembered, want at most %d", len(a.given)+len(a.older), mostGiven)
		}
	}
	var dead engine.ErrProcFailed
	for _, back := range []int32{0, 5, mostGiven/2 - 1} {
		o.tag = 3*mostGiven + 4 - back
		if err := a.recall(o); !errors.As(err, &dead) || dead.Proc != 2 {
			t.Errorf("%d back: got %v, want that 2 has died", back, err)
		}
		if err := a.recall(o); err != nil {
			t.Errorf("%d back: told twice", back)
		}
	}
	if o.tag = 0; a.recall(o) != nil || a.dropped == 0 {
		t.Errorf("the first is remembered; %d were dropped", a.dropped)
	}
}

// TestStartTags: no two starts of operations that may be under way at the same time
// have a tag in common, nor with other operations.
func TestStartTags(t *testing.T) {
	seen := map[int32]bool{}
	for nth := uint32(1); nth <= 300; nth++ {
		for start := uint32(1); start <= 300; start++ {
			tag := startTag(nth, start)
			if seen[tag] || tag < persistentTag {
				t.Fatalf("start %d of operation %d: tag %#x", start, nth, tag)
			}
			seen[tag] = true
		}
	}
	if tag := startTag(1<<32-1, 1<<32-1); tag < persistentTag {
		t.Errorf("the last tag is %#x", tag)
	}
}
