package pmi

import (
	"errors"
	"testing"
)

// TestNamesOfWhoHasLeft: a name is free again when who published it has finalized.
func TestNamesOfWhoHasLeft(t *testing.T) {
	names := NewNames()
	one, err1 := NewServer(Config{Size: 1, Names: names})
	two, err2 := NewServer(Config{Size: 1, Names: names})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if why := names.publish(one, 0, "svc", "p"); why != "" {
		t.Fatal(why)
	}
	one.mu.Lock()
	one.ranks[0].phase = here
	one.mu.Unlock()
	one.leave(0, nil, finalized, 0)
	if why := names.publish(two, 0, "svc", "q"); why != "" {
		t.Error(why)
	}
}
