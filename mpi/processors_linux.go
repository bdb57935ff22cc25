package mpi

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// processors returns those that this process may run on.
func processors() room {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return room{}
	}
	words := set[:]
	for len(words) > 1 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	return room{set.Count(), fmt.Sprintf("%x", words)}
}
