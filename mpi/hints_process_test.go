//go:build linux

package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/pmi"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// envHintRank has the test binary be a rank of a job.
const envHintRank = "MPI_TEST_HINT_RANK"

// TestHintsProcesses: ranks that are processes find the daemon by their environment.
func TestHintsProcesses(t *testing.T) {
	if os.Getenv(envHintRank) != "" {
		mpi.Main(func(c *mpi.Comm) error {
			if err := first(mpi.Alltoall(c, make([]int, 2), make([]int, 2)), mpi.SetAttr(c, mpi.MATB, mpi.Rate(2e6*(1+c.Rank())))); err != nil {
				return err
			}
			if _, err := os.Stdin.Read(make([]byte, 1)); err == nil { // until the test has looked
				return errors.New("no end of input")
			}
			return nil
		})
		return
	}
	s, socket := hintServer(t)
	srv, err := pmi.NewServer(pmi.Config{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, ln) }()
	defer func() { cancel(); <-served }()
	envs := [][]string{{"MESH_HINTS=" + socket}, {"MESH_STATE=" + filepath.Dir(socket), "MESH_MATB=9000000", "MESH_PATTERN=cg"}}
	var ranks []*exec.Cmd
	var inputs []io.Closer
	for r, env := range envs {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHintsProcesses$")
		cmd.Env = append(env, envHintRank+"=1", "PMI_PORT="+ln.Addr().String(), fmt.Sprint("PMI_ID=", r), fmt.Sprint("MESH_NODE=n", r),
			fmt.Sprint("MESH_SITE=s", r), "MESH_ADDRESS=127.0.0.1", "GORACE="+os.Getenv("GORACE"))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ranks, inputs = append(ranks, cmd), append(inputs, in)
	}
	defer func() {
		for _, in := range inputs { // all, before any rank can end
			in.Close()
		}
		for r, cmd := range ranks {
			if err := cmd.Wait(); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}()
	if err := eventually("both have set a rate", func() bool {
		of := map[int64]uint64{}
		for _, i := range s.Pages() {
			of[i.Request.MATB] = i.Left[hint.Alltoall]
		}
		return of[2e6] == 1 && of[4e6] == 1
	}); err != nil {
		t.Error(err)
	}
	for _, i := range s.Pages() {
		parts := int64(0)
		if int(i.Pid) == ranks[1].Process.Pid {
			parts = hint.Whole // one host: at least B, of CG's B/(N/2)
		}
		if i.Request.Parts != parts {
			t.Errorf("process %d asks for parts of %d, want %d", i.Pid, i.Request.Parts, parts)
		}
	}
}
