package hub

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// storeFile returns the content of a store with branches, long values, inline
// and free pages.
func storeFile(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := OpenBolt(path)
	check(t, err)
	check(t, s.Update(func(tx Tx) error {
		for i := range 60 {
			check(t, tx.Put("many", strconv.Itoa(i), make([]byte, 1000)))
		}
		check(t, tx.Put("long", "k", make([]byte, 3*4096)))
		return tx.Put("inline", "k", []byte("v"))
	}))
	check(t, s.Update(func(tx Tx) error {
		for i := range 10 {
			check(t, tx.Delete("many", strconv.Itoa(i)))
		}
		return nil
	}))
	check(t, s.Close())
	b, err := os.ReadFile(path)
	check(t, err)
	return b
}

// TestPageHeaders puts the numbers that hurt most into every page of a store.
func TestPageHeaders(t *testing.T) {
	good := storeFile(t)
	path := filepath.Join(t.TempDir(), "store.db")
	refused := 0
	for page := 2; page < len(good)/4096; page++ {
		for _, field := range []int{8, 10, 12, 16, 20, 24, 28} { // flags, count, overflow, the first element's four
			b := append([]byte{}, good...)
			binary.NativeEndian.PutUint32(b[page*4096+field:], 0xffff_fffe)
			check(t, os.WriteFile(path, b, 0o600))
			if s, err := OpenBolt(path); err == nil { // a page in no use, or a field that it does not have
				check(t, s.Close())
			} else if refused++; !strings.Contains(err.Error(), "is damaged") {
				t.Errorf("page %d, byte %d: %v", page, field, err)
			}
		}
	}
	if refused < 50 {
		t.Errorf("only %d damages were found", refused)
	}
}

// FuzzStoreFile changes bytes of a store: opening it must end, in good or ill.
func FuzzStoreFile(f *testing.F) {
	good := storeFile(f)
	dir := f.TempDir()
	f.Add([]byte{2, 0, 8, 1, 3, 0, 10, 0xff})
	f.Add([]byte{0, 0, 40, 9, 1, 0, 40, 9})
	f.Fuzz(func(t *testing.T, changes []byte) {
		b := append([]byte{}, good...)
		for ; len(changes) >= 4; changes = changes[4:] { // page, offset, value
			at := int(changes[0])*4096 + int(changes[1])%16<<8 + int(changes[2])
			b[at%len(b)] = changes[3]
		}
		path := filepath.Join(dir, "store.db")
		check(t, os.WriteFile(path, b, 0o600))
		if s, err := OpenBolt(path); err == nil {
			check(t, s.View(func(tx Tx) error {
				for _, bucket := range []string{"many", "long", "inline"} {
					check(t, tx.Each(bucket, func(string, []byte) error { return nil }))
				}
				return nil
			}))
			check(t, s.Close())
		}
	})
}
