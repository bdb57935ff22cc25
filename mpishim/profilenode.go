package mpishim

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// ProfileArg makes meshrun send what the ranks of one node have recorded to a
// meshrun elsewhere: a hidden mode, followed by the job's number.
const ProfileArg = "_profile"

// profileLibrary records what C and Fortran programs send; see preload/profile. It
// lies beside our binaries on each node.
const profileLibrary = "libmeshmpi-profile.so"

// Variables by which a profile is asked for.
const (
	varProfile = "MESHRUN_PROFILE" // the job's number, which names the folder on each node
	varRecords = "MESH_PROFILE"    // that folder, for the library and package mpi
)

// profilePrefix begins the names of folders for records.
const profilePrefix = "meshrun-profile-"

// forgotten is how old a folder is that nobody has fetched.
const forgotten = 24 * time.Hour

// profileRoot is where folders for records are made: in memory where there is such
// a place, so that records cost no writes to a disk.
func profileRoot() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// profileDir is a job's folder on a node; "" for what is no job's number. Nodes that
// share memory, as those of one machine may, have one each.
func profileDir(root, job, node string) string {
	for _, s := range []string{job, node} {
		if s == "" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return r < '-' || r == '/' || r > 'z' }) {
			return ""
		}
	}
	return filepath.Join(root, profilePrefix+job+"-"+node)
}

// ours reports whether a path is a folder that is this user's and nobody else's.
func ours(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// makeRecords makes the folder in which the ranks of this node record, and returns
// it; "" if no profile is asked for, or none can be. What earlier jobs left goes.
func makeRecords(root, job, node string) string {
	dir := profileDir(root, job, node)
	if dir == "" {
		return ""
	}
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) || !ours(dir) {
		return ""
	}
	holdRecords(dir)
	if err == nil { // the first rank of the node
		dropForgotten(root, time.Now())
	}
	return dir
}

// heldRecords are folders of jobs whose ranks this process runs. It keeps each locked
// until it ends, so that others know that its ranks may still record: that changes the
// time of no file.
var heldRecords sync.Map // of *os.File, by path

func holdRecords(dir string) {
	if _, held := heldRecords.Load(dir); held {
		return
	}
	if f, err := openFolder(dir); err == nil && unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		heldRecords.Store(dir, f)
	}
}

func openFolder(dir string) (*os.File, error) {
	return os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// dropForgotten removes this user's folders that nobody fetched.
func dropForgotten(root string, now time.Time) {
	old, _ := filepath.Glob(filepath.Join(root, profilePrefix+"*"))
	for _, dir := range old {
		if now.Sub(lastChange(dir)) > forgotten && ours(dir) {
			dropFolder(dir)
		}
	}
}

// dropFolder removes a folder for records in which no rank that lives records.
func dropFolder(dir string) {
	f, err := openFolder(dir)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(dir) // or it stays for another time
	}
}

// lastChange is when a folder or one of its files was last changed, as far as that shows.
func lastChange(dir string) (at time.Time) {
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range append(files, dir) {
		if info, err := os.Lstat(path); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}

// recordsVariable is what the ranks of a node get for a profile, given the variables
// that they have: the last of a name counts. Ranks of spawned jobs record nothing.
func recordsVariable(root string, env []string) []string {
	if getenv(env, "PMI_SPAWNED") == "1" {
		return []string{varRecords + "="}
	}
	if dir := makeRecords(root, getenv(env, varProfile), getenv(env, varNode)); dir != "" {
		return []string{varRecords + "=" + dir}
	}
	return nil
}

// The stream of records: profileHello "\n", then compressed by gzip each record after
// its length, 4 bytes big-endian, and a length of zero at the end.
const profileHello = "\x00meshrun-profile 1"

var errRecords = errors.New("it does not send records as meshrun does; install the same version on all nodes")

// RunProfile is the body of the hidden mode: it writes this node's records of a job
// to standard output, removes them, and returns the exit code.
func RunProfile(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "meshrun: no job whose records are wanted")
		return CodeFailed
	}
	if err := sendRecords(os.Stdout, profileDir(profileRoot(), args[0], os.Getenv(varNode))); err != nil {
		fmt.Fprintf(os.Stderr, "meshrun: records: %v\n", err)
		return CodeFailed
	}
	return 0
}

// sendRecords writes all records of a folder and removes it; a folder that is not
// there has none.
func sendRecords(w io.Writer, dir string) error {
	out := bufio.NewWriter(w)
	if _, err := out.WriteString(profileHello + "\n"); err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	err := eachRecord(dir, func(b []byte) error {
		if err := binary.Write(z, binary.BigEndian, uint32(len(b))); err != nil {
			return err
		}
		_, err := z.Write(b)
		return err
	})
	if err == nil {
		err = binary.Write(z, binary.BigEndian, uint32(0))
	}
	return errors.Join(err, z.Close(), out.Flush())
}

// eachRecord hands over the files of a folder and removes it.
func eachRecord(dir string, take func([]byte) error) error {
	if dir == "" || !ours(dir) {
		return nil
	}
	defer os.RemoveAll(dir) // what stays is removed by a later job
	files, err := filepath.Glob(filepath.Join(dir, "rank-*"))
	if err != nil {
		return err
	}
	for _, name := range files {
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > int64(record.Size(record.MaxRanks)) {
			continue // no record of ours
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := take(b); err != nil {
			return err
		}
	}
	return nil
}

// readRecords takes such a stream apart, of at most so many records.
func readRecords(r io.Reader, most int, take func([]byte)) error {
	in := bufio.NewReader(r)
	if err := skipTo(in, profileHello+"\n"); err != nil {
		return err
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("the records break off: %w", err)
	}
	for range most + 1 {
		var size uint32
		if err := binary.Read(z, binary.BigEndian, &size); err != nil {
			return fmt.Errorf("the records break off: %w", err)
		}
		if size == 0 {
			return nil
		}
		if size > uint32(record.Size(record.MaxRanks)) {
			return fmt.Errorf("a record of %d bytes: %w", size, errRecords)
		}
		b := make([]byte, size)
		if _, err := io.ReadFull(z, b); err != nil {
			return fmt.Errorf("the records break off: %w", err)
		}
		take(b)
	}
	return fmt.Errorf("more than %d records: %w", most, errRecords)
}

// skipTo reads past a mark; login scripts may have talked before.
func skipTo(in *bufio.Reader, mark string) error {
	var last []byte
	for range maxTalk {
		b, err := in.ReadByte()
		if err != nil {
			return fmt.Errorf("no records came: %w", err)
		}
		if last = append(last, b); len(last) > len(mark) {
			last = last[1:]
		}
		if string(last) == mark {
			return nil
		}
	}
	return errRecords
}
