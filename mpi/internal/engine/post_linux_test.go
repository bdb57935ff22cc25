package engine

import "testing"

// TestMaxPost: the largest active message is one frame on the smallest ring.
func TestMaxPost(t *testing.T) {
	for what, slots := range map[string]int{"heap": heapSlots, "shared memory": sharedSlots} {
		if most := mostFrame(slots) - longHeader; MaxPost > most {
			t.Errorf("a ring on the %s carries %d bytes, and MaxPost is %d", what, most, MaxPost)
		}
	}
}
