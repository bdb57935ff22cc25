package mpishim

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"
)

// TestGoJobsSlowReader: what a job has said is all there for a reader who comes back to it
// after the job's end, as from a page of less.
func TestGoJobsSlowReader(t *testing.T) {
	const size = 1300 << 10
	p := goPlan(t, "/bin/sh", "-c", "case $PMI_RANK in 1) head -c 1331200 /dev/zero;; esac")
	cmd, _, errs := job(t, p)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	time.Sleep(10 * time.Second)
	var out bytes.Buffer
	io.Copy(&out, r)
	err = cmd.Wait()
	if out.Len() != size || err != nil || errs.String() != "" {
		t.Errorf("got %d bytes of %d, %v, %q", out.Len(), size, err, errs)
	}
}
