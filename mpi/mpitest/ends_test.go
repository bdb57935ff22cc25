package mpitest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// failing hears what a Run says.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()          {}
func (f *failing) Fatal(all ...any) { f.said = fmt.Sprint(all...) }

// TestGoexit: a rank whose goroutine ends, as by t.FailNow, ends the run at once.
func TestGoexit(t *testing.T) {
	for _, n := range []int{1, 2} {
		f := &failing{TB: t}
		mpitest.Run(f, n, func(c *mpi.Comm) error {
			if c.Rank() == n-1 {
				runtime.Goexit()
			}
			return mpi.Barrier(c)
		}, mpitest.Timeout(time.Minute))
		if !strings.Contains(f.said, "t.FailNow") {
			t.Errorf("%d ranks: %q", n, f.said)
		}
	}
}

// TestSiteWithHyphen: a site's name may have hyphens, and its ranks are near each other.
func TestSiteWithHyphen(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		began := time.Now()
		for range 5 {
			if err := mpi.Barrier(c); err != nil {
				return err
			}
		}
		if d := time.Since(began); d > 10*time.Second {
			return fmt.Errorf("five barriers within a site take %v", d)
		}
		return nil
	}, mpitest.WAN(5*time.Second, 0), mpitest.Place(func(r int) (host, site string) { return fmt.Sprint("h", r), "eu-west" }))
}
