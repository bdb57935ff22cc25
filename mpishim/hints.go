package mpishim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// patternLibrary tells meshd what programs in C and Fortran do; see
// preload/pattern. It lies beside our binaries on each node.
const patternLibrary = "libmeshmpi-pattern.so"

// Variables by which a job is described to that library, and to package mpi.
const (
	varHints   = "MESH_HINTS"    // 0: give none
	varMATB    = "MESH_MATB"     // bits per second, for the whole job
	varPattern = "MESH_PATTERN"  // one of patterns
	varRanks   = "MESH_RANKS"    // where the ranks are, see rankTable
	varLibrary = "MESHRUN_HINTS" // put the library before ranks; "say": and say where it is absent
)

// patterns are those for which GridMPI's paper says what share of a link a node
// needs. The library knows the shares, since it knows how many nodes a site has in
// the job.
func patterns() []string { return []string{"alltoall", "bt", "cg", "ft", "is", "lu", "mg", "sp"} }

// CheckPattern says in one line whether a communication pattern is one that ranks
// know; "" is none.
func CheckPattern(name string) error {
	if name == "" || slices.Contains(patterns(), name) {
		return nil
	}
	return fmt.Errorf("mpishim: no pattern is called %q; use one of %s", name, strings.Join(patterns(), ", "))
}

// maxTable bounds the table of ranks, in bytes: the kernel takes variables of
// 128 KiB. Larger jobs go without, and their hosts are estimated.
const maxTable = 96 << 10

// rankTable says where ranks are, in their order: SITE/NODE:RANKS,… with SITE left
// out where it is that of the entry before. Launchers have delimiters of their own
// in variables, so it has only these.
func rankTable(places []Place) string {
	var b strings.Builder
	site := ""
	for i, p := range places {
		if i > 0 {
			b.WriteByte(',')
		}
		if p.Host.Site != site {
			site = p.Host.Site
			b.WriteString(site)
		}
		fmt.Fprintf(&b, "/%s:%d", p.Host.Name, p.Ranks)
	}
	if b.Len() > maxTable {
		return ""
	}
	return b.String()
}

// hintVariables are those that every rank gets.
func (p Plan) hintVariables() []string {
	if p.NoHints {
		return []string{varHints + "=0"}
	}
	library := "1"
	if p.Verbose || p.MATB > 0 || p.Pattern != "" {
		library = "say"
	}
	env := []string{varLibrary + "=" + library}
	if table := rankTable(p.Places); table != "" {
		env = append(env, varRanks+"="+table)
	}
	if p.MATB > 0 {
		env = append(env, varMATB+"="+strconv.FormatInt(p.MATB, 10))
	}
	if p.Pattern != "" {
		env = append(env, varPattern+"="+p.Pattern)
	}
	return env
}

// addLibraries has the program that this process starts load what it was asked to,
// after what its user has it load. It returns lines for the user where that is not to
// be; the program runs all the same.
func addLibraries() (notes []string) {
	if dir := makeRecords(profileRoot(), os.Getenv(varProfile), os.Getenv(varNode)); dir != "" {
		os.Setenv(varRecords, dir)
		// Before the other one, whose functions it then calls.
		notes = append(notes, addLibrary(profileLibrary, true, "are not profiled")...)
	}
	if how := os.Getenv(varLibrary); how != "" {
		notes = append(notes, addLibrary(patternLibrary, how == "say", "tell the pacer nothing")...)
	}
	return notes
}

// addLibrary adds one library of this node.
func addLibrary(name string, say bool, without string) (notes []string) {
	dir := os.Getenv("MESH_BIN")
	if dir == "" {
		dir = os.Getenv(varBin)
	}
	path := filepath.Join(dir, name)
	if unix.Access(path, unix.R_OK) == nil && !strings.ContainsAny(path, ": ") { // which part names in LD_PRELOAD
		if before := os.Getenv("LD_PRELOAD"); before != "" {
			path = before + ":" + path
		}
		os.Setenv("LD_PRELOAD", path)
		return nil
	}
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"} {
		if v := os.Getenv(name); v != "" && v != "0" { // one of a node says it
			return nil
		}
	}
	if !say {
		return nil
	}
	return []string{fmt.Sprintf("meshrun: node %s has no %s; its ranks run, and %s", os.Getenv(varNode), path, without)}
}
