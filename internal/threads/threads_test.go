package threads

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// TestEach: every thread is met once, one that begins meanwhile too, and the first error
// ends it, unless it says that the thread has ended.
func TestEach(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	begin := func() int { // a thread that lasts
		id := make(chan int)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			id <- syscall.Gettid()
			<-release
		}()
		return <-id
	}
	want := []int{begin(), begin()}
	met := map[int]int{}
	if err := Each(func(id int) error {
		if len(met) == 0 {
			want = append(want, begin())
		}
		met[id]++
		return syscall.ESRCH
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range append(want, os.Getpid()) {
		if met[id] != 1 {
			t.Errorf("thread %d was met %d times", id, met[id])
		}
	}
	calls := 0
	if err := Each(func(int) error { calls++; return exec.ErrNotFound }); !errors.Is(err, exec.ErrNotFound) || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}
