// Package threads does something to every thread of this process, as is needed where the
// kernel knows threads only: priorities, above all. Go begins threads when it likes, each
// with the properties of the one that begins it.
//
// It does not change what a thread is called, where it runs, or what it does.
package threads

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Each calls do for every thread, by its kernel's number, until no new ones are found: one
// that began meanwhile may have been begun by one that do had not been called for. A
// thread that has ended is passed over. It ends with the first error of do's.
func Each(do func(id int) error) error {
	for again, done := true, map[string]bool{}; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("threads: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil || done[t.Name()] {
				continue
			}
			if err := do(id); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			done[t.Name()], again = true, true
		}
	}
	return nil
}
