package mpishim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/exec"
	"github.com/meshmpi/meshmpi/mpishim/profile"
	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// blockOf is the i-th of n shares of count elements.
func blockOf(count, n, i int) int {
	if i < count%n {
		return count/n + 1
	}
	return count / n
}

func yes(b bool, n int) int {
	if b {
		return n
	}
	return 0
}

// wantInC is what rank i of testdata/profile.c sends rank j, of four, in messages and
// in collective operations.
func wantInC(i, j int) (messages, collective int) {
	next, other := j == (i+1)%4, j == (i+2)%4
	messages = yes(next, 80) + yes(j == 0 && i != 0, 5) + yes(other, 24) + yes(i == j, 50)
	if i == j {
		return messages, 0
	}
	collective = yes(i == 1, 56) + yes(j == 2, 8+2) + yes(i == 3, 4+2) + 6 + 9 + i + j + 1 + yes(j == 0, 24) +
		8*(blockOf(6, 4, i)+blockOf(6, 4, j)) + 4*(j+1) + yes(j == i+1, 8) + 5 +
		yes(i < 2 && other, 11) + yes(other, 1) + yes(!other, 13)
	return messages, collective
}

func wantInFortran(i, j int) (messages, collective int) {
	messages = yes(j == (i+1)%4, 80) + yes(j == (i+2)%4, 48)
	if i == j {
		return messages, 0
	}
	return messages, 5 + i + j + 1 + yes(i == 1, 56) + 16
}

// profiled runs a job of four ranks, each on a node of its own, and returns their
// records.
func profiled(t *testing.T, p Plan) []*record.Record {
	t.Helper()
	p.Profile = newSecret()
	if out := steps(t, p, func(string) {}); !strings.Contains(out, "good\n") {
		t.Errorf("output %q", out)
	}
	list := make([]*record.Record, 4)
	for i, pl := range p.Places {
		dir := profileDir(profileRoot(), p.Profile, pl.Host.Name)
		t.Cleanup(func() { os.RemoveAll(dir) })
		err := eachRecord(dir, func(b []byte) error {
			r, err := record.Parse(b)
			if err == nil && r.Rank != i {
				err = fmt.Errorf("rank %d on node %d", r.Rank, i)
			}
			list[i] = r
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if list[i] == nil {
			t.Fatalf("no record of rank %d in %s", i, dir)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("the records are still there")
		}
	}
	return list
}

func wantBytes(t *testing.T, list []*record.Record, want func(i, j int) (int, int)) {
	t.Helper()
	for i, r := range list {
		for j, p := range r.Peers {
			m, c := want(i, j)
			if p.Messages != uint64(m) || p.Collective != uint64(c) {
				t.Errorf("rank %d to %d: %d bytes in messages, %d in collectives, want %d and %d", i, j, p.Messages, p.Collective, m, c)
			}
			var sum uint64
			for _, row := range r.Cells {
				sum += row[j]
			}
			if sum != p.Messages+p.Collective {
				t.Errorf("rank %d to %d: %d bytes over time, %d in all", i, j, sum, p.Messages+p.Collective)
			}
		}
		if !r.Ended || r.Missed != 0 || r.Outside != 0 {
			t.Errorf("rank %d: ended %v, %d missed, %d outside", i, r.Ended, r.Missed, r.Outside)
		}
	}
}

// TestProfileInC: every kind of sending, under both MPIs, to the byte; and with the
// pacer's library in front of the same functions.
func TestProfileInC(t *testing.T) {
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			p := hinting(t, kind, compileIn(t, compiler, "testdata/profile.c"))
			for _, p.NoHints = range []bool{false, true} {
				list := profiled(t, p)
				wantBytes(t, list, wantInC)
				calls := map[record.Op]uint64{record.Sendrecv: 2, record.Start: 2, record.Bcast: 2, record.Alltoall: 3, record.Alltoallv: 1,
					record.Allreduce: 1, record.Barrier: 2, record.NeighborAlltoall: 1, record.Scan: 1, record.Gather: 2, record.Scatter: 2}
				for o, n := range calls {
					if got := list[1].Ops[o].Calls; got != n {
						t.Errorf("%d calls of %v, want %d", got, o, n)
					}
				}
			}
		})
	}
}

func TestProfileInFortran(t *testing.T) {
	for kind, compiler := range installed() {
		for _, binding := range []string{"mpif", "f08"} {
			t.Run(string(kind)+"/"+binding, func(t *testing.T) {
				if _, err := osexec.LookPath("gfortran"); err != nil {
					t.Skip("gfortran is not installed")
				}
				f90 := strings.Replace(compiler, "mpicc", "mpif90", 1)
				wantBytes(t, profiled(t, hinting(t, kind, compileIn(t, f90, "testdata/profile_"+binding+".f90"))), wantInFortran)
			})
		}
	}
}

// records makes a folder with the records of a job of two ranks, both on one node.
func records(t testing.TB, root, job, node string) string {
	t.Helper()
	dir := makeRecords(root, job, node)
	if dir == "" {
		t.Fatal("no folder")
	}
	for rank := range 2 {
		w, err := record.Create(dir, rank, 2)
		if err != nil {
			t.Fatal(err)
		}
		w.Message(record.Send, 1-rank, 100)
		w.Close(true)
	}
	return dir
}

// TestRecordsStream sends records, behind what a login script says.
func TestRecordsStream(t *testing.T) {
	dir := records(t, t.TempDir(), "ab", "n1")
	if err := os.WriteFile(filepath.Join(dir, "rank-9"), make([]byte, record.Size(record.MaxRanks)+1), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("welcome to n1\n\x00meshrun-")
	if err := sendRecords(&b, dir); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	var got [][]byte
	take := func(raw []byte) { got = append(got, raw) }
	if err := readRecords(bytes.NewReader(whole), 2, take); err != nil || len(got) != 2 || len(got[0]) != record.Size(2) {
		t.Errorf("%d records, %v", len(got), err)
	}
	if err := readRecords(bytes.NewReader(whole), 1, take); !errors.Is(err, errRecords) {
		t.Errorf("more records than ranks: %v", err)
	}
	if err := readRecords(bytes.NewReader(whole[:len(whole)-20]), 2, take); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that breaks off: %v", err)
	}
	if err := readRecords(strings.NewReader("sh: 1: meshrun: not found\n"), 2, take); !errors.Is(err, io.EOF) {
		t.Errorf("no stream: %v", err)
	}
	if err := readRecords(strings.NewReader(strings.Repeat("x", maxTalk+1)), 2, take); !errors.Is(err, errRecords) {
		t.Errorf("endless talk: %v", err)
	}
	b.Reset()
	if err := sendRecords(&b, dir); err != nil || readRecords(&b, 2, take) != nil || len(got) != 2+1+2 {
		t.Errorf("fetched twice: %d records, %v", len(got), err)
	}
}

func FuzzReadRecords(f *testing.F) {
	var b bytes.Buffer
	if err := sendRecords(&b, records(f, f.TempDir(), "ab", "n1")); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	b.Reset()
	b.WriteString(profileHello + "\n")
	z := gzip.NewWriter(&b)
	_ = binary.Write(z, binary.BigEndian, uint32(1<<31))
	_ = z.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		if err := readRecords(bytes.NewReader(in), 3, func([]byte) { n++ }); err == nil && n > 3 {
			t.Errorf("%d records", n)
		}
	})
}

// TestMakeRecords: a folder is this user's alone, is found by all ranks of a node, and
// goes when nobody has fetched it for a day.
func TestMakeRecords(t *testing.T) {
	root := t.TempDir()
	old := makeRecords(root, "0ld", "n1")
	day := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, day, day); err != nil {
		t.Fatal(err)
	}
	long := makeRecords(root, "1ong", "n1") // whose ranks still run
	if err := os.Chtimes(long, day, day); err != nil {
		t.Fatal(err)
	}
	ended := makeRecords(root, "2ong", "n1") // and are just being fetched
	if err := os.WriteFile(filepath.Join(ended, record.FileName(0)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(ended, day, day); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{old, ended} { // their processes have ended
		f, _ := heldRecords.LoadAndDelete(dir)
		f.(*os.File).Close()
	}
	dir := makeRecords(root, "ab", "n1")
	for _, kept := range []string{long, ended} {
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
	if dir == "" || makeRecords(root, "ab", "n1") != dir || makeRecords(root, "ab", "n2") == dir {
		t.Errorf("folders: %q", dir)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("an old folder is kept")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(root, profilePrefix+"cd-n1")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range [][2]string{{"ab", "n1"}, {"cd", "n1"}, {"", "n1"}, {"../x", "n1"}, {"ab", ""}, {strings.Repeat("a", 65), "n1"}} {
		if got := makeRecords(root, tt[0], tt[1]); got != "" {
			t.Errorf("%q: got %s", tt, got)
		}
	}
	env := []string{varProfile + "=77", varNode + "=n1", varNode + "=n3"}
	if got := recordsVariable(root, env); len(got) != 1 || got[0] != varRecords+"="+profileDir(root, "77", "n3") {
		t.Errorf("%v", got)
	}
	if got := recordsVariable(root, append(env, "PMI_SPAWNED=1")); len(got) != 1 || got[0] != varRecords+"=" {
		t.Errorf("spawned: %v", got)
	}
	if got := recordsVariable(root, nil); got != nil {
		t.Errorf("not asked for: %v", got)
	}
}

// TestCollect: records come from this node and others; what a node does not send is a
// note, and without any there is no profile.
func TestCollect(t *testing.T) {
	p := Plan{Profile: newSecret(), Launcher: Launcher{Kind: OpenMPI}, Apps: []App{{N: 2, Prog: "/x/prog", Args: []string{"7"}}},
		Places: []Place{{Host{Name: "n1", Site: "alpha", Self: true}, 1}, {Host{Name: "n2", Site: "beta"}, 1}}}
	remote := func(how string) Remote {
		return func(_ context.Context, host string, opt exec.RunOptions) (int, error) {
			if host != "n2" || !strings.Contains(opt.Command, ProfileArg+" "+p.Profile) {
				t.Errorf("%s: %s", host, opt.Command)
			}
			switch how {
			case "down":
				return exec.CodeFailed, errors.New("node n2: gone")
			case "strange":
				fmt.Fprint(opt.Stdout, profileHello+"\nnothing that gzip knows")
				return 0, nil
			case "fails":
				fmt.Fprintln(opt.Stderr, "meshrun: no such thing")
				return 125, nil
			}
			return 0, sendRecords(opt.Stdout, makeRecords(profileRoot(), p.Profile, "n2"))
		}
	}
	put := func(node string, rank int) {
		w, err := record.Create(makeRecords(profileRoot(), p.Profile, node), rank, 2)
		if err != nil {
			t.Fatal(err)
		}
		w.Message(record.Send, 1-rank, 1000)
		w.Close(true)
	}
	t.Cleanup(func() {
		for _, n := range []string{"n1", "n2"} {
			os.RemoveAll(profileDir(profileRoot(), p.Profile, n))
		}
	})
	for _, tt := range []struct{ how, note string }{{"", ""}, {"down", "node n2: gone"}, {"strange", "node n2: the records break off"}, {"fails", "node n2: its records could not be read: meshrun: no such thing"}} {
		put("n1", 0)
		if tt.how == "" {
			put("n2", 1)
		}
		got, notes, err := Collect(t.Context(), p, remote(tt.how), []profile.Link{{A: "alpha", Up: 1e8}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(notes, "\n"); !strings.Contains(all, tt.note) || (tt.note == "") != (all == "") {
			t.Errorf("%s: notes %q", tt.how, all)
		}
		if want := uint64(1000 + yes(tt.how == "", 1000)); got.Bytes != want || got.Program != "prog 7" || got.Ranks[1].Recorded != (tt.how == "") {
			t.Errorf("%s: %d bytes of %s", tt.how, got.Bytes, got.Program)
		}
	}
	if _, _, err := Collect(t.Context(), p, remote(""), nil, nil); err == nil || !strings.Contains(err.Error(), profileLibrary) {
		t.Errorf("no records: %v", err)
	}
	if id, err := NewProfile(p); err != nil || profileDir("/", id, "n1") == "" {
		t.Errorf("%q, %v", id, err)
	}
	p.Places[0].Ranks = record.MaxRanks
	if _, err := NewProfile(p); Code(err) != CodeFailed {
		t.Errorf("too many ranks: %v", err)
	}
}
