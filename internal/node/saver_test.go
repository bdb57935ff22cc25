package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDisk is where a test's values are written.
type fakeDisk struct {
	mu     sync.Mutex // guards what follows
	full   error
	value  int
	writes int
	notes  []error
}

func (d *fakeDisk) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, err)
}

func (d *fakeDisk) write(v int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	if d.full == nil {
		d.value = v
	}
	return d.full
}

func (d *fakeDisk) fill(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

// want checks the value, how often was written, and how many notes were made.
func (d *fakeDisk) want(t *testing.T, when string, value, writes, notes int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.value != value || d.writes != writes || len(d.notes) != notes {
		t.Errorf("%s: the disk has %d after %d writes and notes %v; want %d after %d and %d notes", when, d.value, d.writes, d.notes, value, writes, notes)
	}
}

// TestSaver: the newest value is written, at most once a second; what fails is
// tried again until it succeeds; what is left at the end is written then.
func TestSaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk fakeDisk
		s := newSaver(disk.note)
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		put := func(v int) {
			s.put("v", func() error { return disk.write(v) })
			synctest.Wait()
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		put(1)
		put(2)
		put(3)
		disk.want(t, "at first", 1, 1, 0)
		pass(saveEvery)
		disk.want(t, "a second later", 3, 2, 0)

		disk.fill(errors.New("full"))
		put(4)
		pass(saveEvery + 2*saveFailed)
		disk.want(t, "with a full disk", 3, 5, 3)
		disk.fill(nil)
		pass(saveFailed)
		disk.want(t, "with room again", 4, 6, 4)
		pass(time.Hour)
		disk.want(t, "with nothing new", 4, 6, 4)

		put(5)
		put(6)
		cancel()
		synctest.Wait()
		disk.want(t, "when ended", 5, 7, 4)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		disk.want(t, "when closed", 6, 8, 4)
	})
}

// TestSaverKeepsTheNewest: a write that fails does not come back over a newer one.
func TestSaverKeepsTheNewest(t *testing.T) {
	s := newSaver(func(error) {})
	got := ""
	s.put("v", func() error {
		s.put("v", func() error { got = "newer"; return nil })
		return errors.New("full")
	})
	if s.flush() == nil {
		t.Error("the failure is not told")
	}
	if err := s.flush(); err != nil || got != "newer" {
		t.Errorf("written is %q, %v", got, err)
	}
}
