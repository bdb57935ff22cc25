package mpi_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// messagesOf sends what wantRecorded knows of messages.
func messagesOf(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	next, last := (me+1)%n, (me+n-1)%n
	d, e := make([]float64, 10), make([]float64, 10)
	_, err := mpi.Sendrecv(c, d, next, 0, e, last, 0)
	if me > 0 {
		r, err2 := mpi.Isend(c, make([]byte, 5), 0, 1)
		_, err3 := r.Wait()
		err = errors.Join(err, err2, err3)
	}
	for i := 1; me == 0 && i < n; i++ {
		_, err2 := mpi.Recv(c, make([]byte, 5), i, 1)
		err = errors.Join(err, err2)
	}
	p, err2 := mpi.SendInit(c, make([]int32, 3), (me+2)%n, 2)
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	for range 2 {
		err := p.Start()
		_, err2 := mpi.Recv(c, make([]int32, 3), (me+2)%n, 2)
		_, err3 := p.Wait()
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
	}
	return mpi.Send(c, make([]byte, 5), mpi.ProcNull, 3)
}

// collectivesOf does the collective operations of wantRecorded.
func collectivesOf(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	bytes := func(k int) []byte { return make([]byte, k) }
	ints := func(k int) []int32 { return make([]int32, k) }
	floats := func(k int) []float64 { return make([]float64, k) }
	counts, total := make([]int, n), 0
	for i := range counts {
		counts[i] = me + i + 1
		total += counts[i]
	}
	l := mpi.Layout{Counts: counts}
	var gathered []int32
	if me == 2 {
		gathered = ints(2 * n)
	}
	var dealt []byte
	if me == 3 {
		dealt = bytes(4 * n)
	}
	r, err := mpi.Ialltoall(c, bytes(9*n), bytes(9*n))
	_, err2 := r.Wait()
	return errors.Join(err, err2,
		mpi.Bcast(c, floats(7), 1), mpi.Gather(c, ints(2), gathered, 2), mpi.Scatter(c, dealt, bytes(4), 3),
		mpi.Allgather(c, bytes(6), bytes(6*n)), mpi.Alltoallv(c, bytes(total), l, bytes(total), l),
		mpi.Reduce(c, floats(3), floats(3), mpi.Sum, 0), mpi.Allreduce(c, floats(6), floats(6), mpi.Sum),
		mpi.ReduceScatter(c, ints(10), ints(me+1), []int{1, 2, 3, 4}, mpi.Sum), mpi.Scan(c, ints(2), ints(2), mpi.Sum),
		mpi.Alltoall(c, nil, bytes(5*n)), mpi.Barrier(c))
}

// communicatorsOf sends in parts of the world.
func communicatorsOf(c *mpi.Comm) error {
	half, err := c.Split(c.Rank()%2, c.Rank())
	if err != nil {
		return err
	}
	copied, err := half.Dup()
	if err != nil {
		return err
	}
	return errors.Join(mpi.Bcast(half, make([]byte, 11), 0), mpi.Alltoall(copied, make([]byte, 2), make([]byte, 2)))
}

func yes(b bool, n int) int {
	if b {
		return n
	}
	return 0
}

// wantRecorded is what rank i of four gives rank j: in messages and in collective
// operations.
func wantRecorded(i, j int) (messages, collective int) {
	if i == j {
		return 0, 0
	}
	other, block := j == (i+2)%4, []int{2, 2, 1, 1} // of six elements
	messages = yes(j == (i+1)%4, 80) + yes(j == 0, 5) + yes(other, 24)
	collective = yes(i == 1, 56) + yes(j == 2, 8) + yes(i == 3, 4) + 6 + 9 + i + j + 1 + yes(j == 0, 24) + 8*(block[i]+block[j]) +
		4*(j+1) + yes(j == i+1, 8) + 5 + yes(i < 2 && other, 11) + yes(other, 1)
	return messages, collective
}

// TestProfile: what a rank records is what it was called with, to the byte, and as the
// preload library counts in C.
func TestProfile(t *testing.T) {
	dir := t.TempDir()
	mpitest.Run(t, 4, func(c *mpi.Comm) error {
		return errors.Join(messagesOf(c), collectivesOf(c), communicatorsOf(c))
	}, mpitest.With(mpi.WithProfile(dir)))
	for i := range 4 {
		b, err := os.ReadFile(filepath.Join(dir, record.FileName(i)))
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.Parse(b)
		if err != nil || !r.Ended || r.Outside != 0 || r.Missed != 0 {
			t.Fatalf("rank %d: %v, %+v", i, err, r)
		}
		for j, p := range r.Peers {
			m, c := wantRecorded(i, j)
			if p.Messages != uint64(m) || p.Collective != uint64(c) {
				t.Errorf("rank %d to %d: %d bytes in messages, %d in collectives, want %d and %d", i, j, p.Messages, p.Collective, m, c)
			}
		}
		for o, n := range map[record.Op]uint64{record.Sendrecv: 1, record.Start: 2, record.Bcast: 2, record.Alltoall: 3, record.Barrier: 1, record.Scan: 1, record.Other: 0} {
			if got := r.Ops[o].Calls; got != n {
				t.Errorf("rank %d: %d calls of %v, want %d", i, got, o, n)
			}
		}
	}
}

// TestProfileElsewhere: where no record can be made a program runs the same, and
// between two sides what their messages carry counts.
func TestProfileElsewhere(t *testing.T) {
	mpitest.Run(t, 2, func(c *mpi.Comm) error { return mpi.Barrier(c) }, mpitest.With(mpi.WithProfile("/nowhere")))
	dir := t.TempDir()
	mpitest.Run(t, 2, func(c *mpi.Comm) error {
		mine, err := c.Split(c.Rank(), 0)
		if err != nil {
			return err
		}
		both, err := mine.InterCreate(0, c, 1-c.Rank(), 7)
		if err != nil {
			return err
		}
		return mpi.Alltoall(both, make([]byte, 100), make([]byte, 100))
	}, mpitest.With(mpi.WithProfile(dir)))
	b, err := os.ReadFile(filepath.Join(dir, record.FileName(1)))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := record.Parse(b); err != nil || r.Peers[0].Collective != 100 || r.Ops[record.Other].Calls != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
