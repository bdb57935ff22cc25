package record

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func read(t *testing.T, dir string, rank int) *Record {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, FileName(rank)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWriter writes a record by given times and reads it back at every stage.
func TestWriter(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, 1, 3); err == nil {
		t.Error("the file of a rank was made twice")
	}
	w.note(Send, 0, true, Part{2, 100})
	w.note(Alltoall, 5*time.Millisecond, false, Part{0, 10}, Part{2, 20}, Part{-1, 7})
	w.Missed()
	r := read(t, dir, 1)
	want := []Peer{{Collective: 10}, {}, {Messages: 100, Collective: 20, Count: 1}}
	if r.Ended || r.Rank != 1 || !reflect.DeepEqual(r.Peers, want) || r.Outside != 7 || r.Missed != 1 || r.Elapsed != 5*time.Millisecond {
		t.Errorf("while it runs: %+v", r)
	}
	if r.Ops[Send] != (Calls{1, 100}) || r.Ops[Alltoall] != (Calls{1, 37}) {
		t.Errorf("calls %v", r.Ops)
	}
	if r.Cells[0][2] != 100 || r.Cells[1][0] != 10 || r.Cells[1][2] != 20 {
		t.Errorf("cells %v", r.Cells[:2])
	}
	w.note(Isend, 3*time.Second, true, Part{0, 1000}) // past the last bucket: 256 × 4.2 ms
	w.Close(true)
	w.Close(false)
	w.Message(Send, 0, 1)
	r = read(t, dir, 1)
	if r.Width != 1<<(firstWidth+2) || r.Cells[0][2] != 120 || r.Cells[0][0] != 10 || r.Cells[3*time.Second/r.Width][0] != 1000 || !r.Ended {
		t.Errorf("after doubling: width %v, cells %v", r.Width, r.Cells[0])
	}
	var sum uint64
	for _, row := range r.Cells {
		for _, n := range row {
			sum += n
		}
	}
	if sum != 1130 {
		t.Errorf("%d bytes in the cells, want 1130", sum)
	}
}

// TestNobody: a nil writer takes everything, and wrong jobs get none.
func TestNobody(t *testing.T) {
	var w *Writer
	w.Message(Send, 0, 1)
	w.Collective(Barrier)
	w.Missed()
	w.Close(true)
	for _, tt := range []struct{ rank, ranks int }{{0, 0}, {-1, 2}, {2, 2}, {0, MaxRanks + 1}} {
		if _, err := Create(t.TempDir(), tt.rank, tt.ranks); err == nil || !strings.Contains(err.Error(), "at most 4096") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if _, err := Create(filepath.Join(t.TempDir(), "none"), 0, 1); err == nil {
		t.Error("made a file in no folder")
	}
}

// TestTogether: goroutines of a rank may send at once.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				w.Message(Isend, 1, 3)
			}
		})
	}
	all.Wait()
	w.Close(true)
	if r := read(t, dir, 0); r.Peers[1] != (Peer{12000, 0, 4000}) {
		t.Errorf("%+v", r.Peers)
	}
}

// TestByteOrder: a record of a machine of the other byte order is read.
func TestByteOrder(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	w.Message(Send, 1, 300)
	w.Close(true)
	b, err := os.ReadFile(filepath.Join(dir, FileName(0)))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < 24; at += 4 {
		binary.BigEndian.PutUint32(b[at:], le.Uint32(b[at:]))
	}
	for at := 24; at < len(b); at += 8 {
		binary.BigEndian.PutUint64(b[at:], le.Uint64(b[at:]))
	}
	if r, err := Parse(b); err != nil || r.Peers[1].Messages != 300 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestSizes(t *testing.T) {
	for ranks, want := range map[int]int{1: 256, 256: 256, 300: 218, 1024: 64, 4096: 16} {
		if got := buckets(ranks); got != want {
			t.Errorf("%d ranks: %d buckets, want %d", ranks, got, want)
		}
	}
	if n := Size(MaxRanks); n > 640<<10 {
		t.Errorf("the largest file has %d bytes", n)
	}
	for o := Send; o < Ops; o++ {
		if o.String() == "" {
			t.Errorf("op %d has no name", o)
		}
	}
}

func FuzzParse(f *testing.F) {
	dir := f.TempDir()
	for _, ranks := range []int{1, 3} {
		w, err := Create(dir, ranks-1, ranks)
		if err != nil {
			f.Fatal(err)
		}
		w.Collective(Alltoall, Part{0, 5})
		w.Close(true)
		b, err := os.ReadFile(filepath.Join(dir, FileName(ranks-1)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:head])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			return
		}
		if len(r.Peers) < 1 || r.Rank >= len(r.Peers) || len(r.Cells) != buckets(len(r.Peers)) || r.Elapsed < 0 {
			t.Errorf("%d peers, rank %d, %d buckets", len(r.Peers), r.Rank, len(r.Cells))
		}
	})
}

func BenchmarkMessage(b *testing.B) {
	w, err := Create(b.TempDir(), 0, 8)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w.Message(Send, 3, 100)
	}
}
