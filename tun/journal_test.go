package tun

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

func sampleJournal(t testing.TB) []byte {
	cfg := testConfig("")
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	j, err := newJournal(cfg.plan())
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestJournalComesBack(t *testing.T) {
	dir := t.TempDir()
	if j, err := readJournal(dir); j != nil || err != nil {
		t.Errorf("no journal: got %v, %v", j, err)
	}
	want, err := decodeJournal(sampleJournal(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := want.write(dir); err != nil {
			t.Fatal(err)
		}
		got, err := readJournal(dir)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("writing leaves %v", files)
	}
	for range 2 {
		if err := removeJournal(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestCutOffJournalIsRefused(t *testing.T) {
	b := sampleJournal(t)
	for n := range b {
		if j, err := decodeJournal(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes gave %+v", n, len(b), j)
		}
	}
}

func FuzzDecodeJournal(f *testing.F) {
	f.Add(sampleJournal(f))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"boot_id":"","owner":"0123456789abcdef","tun":"a","addr4":"1.1.1.1","addr6":"","cidr4":"1.0.0.0/8","cidr6":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := decodeJournal(b)
		if err != nil {
			return
		}
		if err := j.check(); err != nil || len(j.table()) > 64 {
			t.Fatalf("accepted an unusable plan %+v: %v", j, err)
		}
		again, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := decodeJournal(again); err != nil || !reflect.DeepEqual(k, j) {
			t.Fatalf("%+v came back as %+v, %v", j, k, err)
		}
	})
}

func FuzzLegacyHasChain(f *testing.F) {
	f.Add([]byte("ERROR"))
	f.Fuzz(func(_ *testing.T, b []byte) { legacyHasChain(b) })
}
