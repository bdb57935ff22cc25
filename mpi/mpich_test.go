package mpi_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

// The tests of files mpich_*_test.go ask what the programs of MPICH's test suite
// ask (its folder test/mpi), a case for a program, so that what that suite knows
// of MPI's corners is known here. They are written anew and for Go: what has no
// counterpart here (error handlers, files, Fortran's types) has no case.

// mpichCase answers to one program of the suite.
type mpichCase struct {
	file  string // in the suite's test/mpi
	ranks int
	opts  []mpitest.Option
	body  func(c *mpi.Comm) error
}

// mpichFolders are the cases by the suite's folders.
func mpichFolders() map[string][]mpichCase {
	return map[string][]mpichCase{
		"attr": mpichAttr, "info": mpichInfo, "init": mpichInit, "group": mpichGroup,
		"comm": slices.Concat(mpichComm, mpichIntercomm), "topo": mpichTopo,
		"pt2pt": slices.Concat(mpichPt2pt, mpichPt2pt2), "datatype": mpichDatatype,
		"coll": slices.Concat(mpichColl, mpichColl2, mpichOps),
		"rma":  slices.Concat(mpichRMA, mpichRMA2), "errors": mpichErrors, "spawn": mpichSpawn,
	}
}

// runMPICH runs the cases of a folder.
func runMPICH(t *testing.T, folder string, opts ...mpitest.Option) {
	t.Helper()
	for _, tc := range mpichFolders()[folder] {
		t.Run(tc.file, func(t *testing.T) {
			mpitest.Run(t, tc.ranks, func(c *mpi.Comm) (err error) {
				defer recoverCase(&err)
				return tc.body(c)
			}, slices.Concat(opts, tc.opts)...)
		})
	}
}

// recoverCase makes an error of what must and its kind have ended a case with.
func recoverCase(err *error) {
	p := recover()
	if p == nil {
		return
	}
	if e, ok := p.(checked); ok {
		*err = e.error
		return
	}
	panic(p)
}

func TestMPICHAttr(t *testing.T)     { runMPICH(t, "attr") }
func TestMPICHInfo(t *testing.T)     { runMPICH(t, "info") }
func TestMPICHInit(t *testing.T)     { runMPICH(t, "init") }
func TestMPICHGroup(t *testing.T)    { runMPICH(t, "group") }
func TestMPICHComm(t *testing.T)     { runMPICH(t, "comm") }
func TestMPICHTopo(t *testing.T)     { runMPICH(t, "topo") }
func TestMPICHPt2pt(t *testing.T)    { runMPICH(t, "pt2pt") }
func TestMPICHDatatype(t *testing.T) { runMPICH(t, "datatype") }
func TestMPICHRMA(t *testing.T)      { runMPICH(t, "rma") }
func TestMPICHErrors(t *testing.T)   { runMPICH(t, "errors") }
func TestMPICHSpawn(t *testing.T)    { runMPICH(t, "spawn") }
func TestMPICHColl(t *testing.T)     { runMPICH(t, "coll") }

// TestMPICHNetwork runs what communicates once more between sites, where messages
// go through a network and collective operations take other ways.
func TestMPICHNetwork(t *testing.T) {
	for _, folder := range []string{"comm", "pt2pt", "coll", "rma", "errors", "spawn", "topo"} {
		runMPICH(t, folder, mpitest.Blocks(2), mpitest.WAN(100*time.Microsecond, 0))
	}
}

// TestMPICHCrowded runs it where ranks crowd a host, and show each other what they can.
func TestMPICHCrowded(t *testing.T) {
	for _, folder := range []string{"comm", "coll", "errors", "topo"} {
		runMPICH(t, folder, mpitest.With(mpi.Crowded()))
	}
}

// TestMPICHGroupLinks runs it where the ranks of a site share connections.
func TestMPICHGroupLinks(t *testing.T) {
	for _, folder := range []string{"pt2pt", "coll"} {
		runMPICH(t, folder, mpitest.Blocks(2), mpitest.WAN(0, 0), mpitest.With(mpi.WithGroupLinks(2)))
	}
}

// TestMPICHCount holds the suite to its size: every folder is there, no program
// twice, each in its folder.
func TestMPICHCount(t *testing.T) {
	total := 0
	seen := map[string]bool{}
	for folder, cases := range mpichFolders() {
		for _, tc := range cases {
			if !strings.HasPrefix(tc.file, folder+"/") || seen[tc.file] {
				t.Errorf("%s: in the table of %s, or there twice", tc.file, folder)
			}
			seen[tc.file] = true
		}
		t.Logf("%s: %d", folder, len(cases))
		total += len(cases)
	}
	for _, folder := range []string{"attr", "coll", "comm", "datatype", "errors", "group", "info", "init", "pt2pt", "rma", "spawn", "topo"} {
		if len(mpichFolders()[folder]) == 0 {
			t.Errorf("no case of %s", folder)
		}
	}
	if total < 150 {
		t.Errorf("%d cases, want at least 150", total)
	}
}

// checked is how must and its kind end a case: a panic that runMPICH makes an
// error of the rank. It keeps cases as short as what they ask.
type checked struct{ error }

// endCase ends the case with where its caller's caller stands.
func endCase(err error) {
	_, file, line, _ := runtime.Caller(2)
	panic(checked{fmt.Errorf("%s:%d: %w", filepath.Base(file), line, err)})
}

// must ends the case at the first error.
func must(errs ...error) {
	if err := first(errs...); err != nil {
		endCase(err)
	}
}

// get returns a result and ends the case at an error.
func get[T any](v T, err error) T {
	if err != nil {
		endCase(err)
	}
	return v
}

// get2 is get of two results.
func get2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		endCase(err)
	}
	return a, b
}

// is ends the case when a value is not what it should be.
func is[T comparable](what string, got, want T) {
	if got != want {
		endCase(fmt.Errorf("%s: got %v, want %v", what, got, want))
	}
}

// are is is of slices.
func are[T comparable](what string, got, expect []T) {
	if err := want(what, got, expect); err != nil {
		endCase(err)
	}
}

// refused ends the case when an error is not of a class.
func refused(what string, err error, class mpi.Class) {
	if !errors.Is(err, class) || mpi.ClassOf(err) == 0 {
		endCase(fmt.Errorf("%s: got %v, want %v", what, err, class))
	}
	if strings.Contains(err.Error(), "\n") {
		endCase(fmt.Errorf("%s: more than a line: %q", what, err))
	}
}

// seq is n integers from one on.
func seq(from, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = from + i
	}
	return s
}

// fill is n times a value.
func fill[T any](v T, n int) []T { return slices.Repeat([]T{v}, n) }

// halves joins the ranks below at and the others by an intercommunicator.
func halves(c *mpi.Comm, at int) *mpi.Comm {
	color, remote := 0, at
	if c.Rank() >= at {
		color, remote = 1, 0
	}
	part := get(c.Split(color, 0))
	x := get(part.InterCreate(0, c, remote, 99))
	must(part.Free())
	return x
}
