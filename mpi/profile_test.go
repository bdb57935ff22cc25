package mpi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// recorded runs a program of n ranks and returns what each has recorded.
func recorded(t *testing.T, n int, body func(c *mpi.Comm) error) []*record.Record {
	t.Helper()
	dir := t.TempDir()
	mpitest.Run(t, n, func(t *testing.T, c *mpi.Comm) {
		if err := body(c); err != nil {
			t.Error(err)
		}
	}, mpi.WithProfile(dir))
	list := make([]*record.Record, n)
	for i := range list {
		b, err := os.ReadFile(filepath.Join(dir, record.FileName(i)))
		if err != nil {
			t.Fatal(err)
		}
		if list[i], err = record.Parse(b); err != nil {
			t.Fatal(err)
		}
	}
	return list
}
