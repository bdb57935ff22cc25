package hub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStores runs the conformance suite on every engine.
func TestStores(t *testing.T) {
	for _, engine := range []struct {
		name string
		open func(t *testing.T) Store
	}{
		{"memory", func(*testing.T) Store { return NewMemoryStore() }},
		{"bolt", func(t *testing.T) Store {
			s, err := OpenBolt(filepath.Join(t.TempDir(), "store.db"))
			check(t, err)
			return s
		}},
	} {
		t.Run(engine.name, func(t *testing.T) {
			for _, test := range []struct {
				name string
				run  func(*testing.T, Store)
			}{
				{"keeps", testKeeps}, {"all or nothing", testAtomic}, {"view is read-only", testReadOnly},
				{"order", testOrder}, {"caller owns values", testOwned}, {"as if alone", testSerial}, {"snapshot", testSnapshot},
				{"limits", testLimits},
			} {
				t.Run(test.name, func(t *testing.T) {
					s := engine.open(t)
					test.run(t, s)
					check(t, s.Close())
				})
			}
		})
	}
}

func put(t *testing.T, s Store, bucket, key, value string) {
	t.Helper()
	check(t, s.Update(func(tx Tx) error { return tx.Put(bucket, key, []byte(value)) }))
}

func get(t *testing.T, s Store, bucket, key string) (value []byte) {
	t.Helper()
	check(t, s.View(func(tx Tx) (err error) { value, err = tx.Get(bucket, key); return err }))
	return value
}

func testKeeps(t *testing.T, s Store) {
	if v := get(t, s, "a", "k"); v != nil {
		t.Errorf("an empty store holds %q", v)
	}
	put(t, s, "a", "k", "1")
	put(t, s, "b", "k", "2")
	put(t, s, "a", "k", "3")
	if a, b := get(t, s, "a", "k"), get(t, s, "b", "k"); string(a) != "3" || string(b) != "2" {
		t.Errorf("got %q and %q", a, b)
	}
	check(t, s.Update(func(tx Tx) error {
		return errors.Join(tx.Delete("a", "k"), tx.Delete("a", "absent"), tx.Delete("absent", "k"))
	}))
	if v := get(t, s, "a", "k"); v != nil {
		t.Errorf("after Delete: %q", v)
	}
}

func testAtomic(t *testing.T, s Store) {
	put(t, s, "a", "k", "old")
	fail := errors.New("fail")
	err := s.Update(func(tx Tx) error {
		check(t, tx.Put("a", "k", []byte("new")))
		check(t, tx.Put("fresh", "k", []byte("new")))
		if v, _ := tx.Get("a", "k"); string(v) != "new" {
			t.Errorf("a transaction reads %q where it wrote", v)
		}
		return fail
	})
	if !errors.Is(err, fail) {
		t.Errorf("Update returned %v", err)
	}
	if a, b := get(t, s, "a", "k"), get(t, s, "fresh", "k"); string(a) != "old" || b != nil {
		t.Errorf("a failed Update left %q and %q", a, b)
	}
}

func testReadOnly(t *testing.T, s Store) {
	check(t, s.View(func(tx Tx) error {
		if tx.Put("a", "k", nil) == nil || tx.Delete("a", "k") == nil {
			t.Error("a View may write")
		}
		return nil
	}))
	fail := errors.New("fail")
	if err := s.View(func(Tx) error { return fail }); !errors.Is(err, fail) {
		t.Errorf("View returned %v", err)
	}
}

func testOrder(t *testing.T, s Store) {
	check(t, s.Update(func(tx Tx) error {
		for _, k := range []string{"b", "ab", "a", "\xff", "B"} {
			check(t, tx.Put("a", k, []byte(k)))
		}
		return nil
	}))
	var got []string
	stop := errors.New("stop")
	err := s.View(func(tx Tx) error {
		check(t, tx.Each("absent", func(string, []byte) error { return stop }))
		return tx.Each("a", func(k string, v []byte) error {
			if got = append(got, k); string(v) != k {
				t.Errorf("%q holds %q", k, v)
			}
			if k == "b" {
				return stop
			}
			return nil
		})
	})
	if want := []string{"B", "a", "ab", "b"}; !slices.Equal(got, want) || !errors.Is(err, stop) {
		t.Errorf("walked %q and returned %v, want %q and the walker's error", got, err, want)
	}
}

func testOwned(t *testing.T, s Store) {
	in := []byte("value")
	check(t, s.Update(func(tx Tx) error { return tx.Put("a", "k", in) }))
	in[0] = 'X'
	out := get(t, s, "a", "k")
	out[1] = 'X'
	check(t, s.View(func(tx Tx) error {
		return tx.Each("a", func(_ string, v []byte) error { v[2] = 'X'; return nil })
	}))
	if v := get(t, s, "a", "k"); string(v) != "value" {
		t.Errorf("somebody changed the stored value to %q", v)
	}
}

func testSerial(t *testing.T, s Store) {
	const writers, each = 8, 10
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range each {
				err := s.Update(func(tx Tx) error {
					v, err := tx.Get("a", "n")
					if err != nil {
						return err
					}
					n, _ := strconv.Atoi(string(v))
					return tx.Put("a", "n", []byte(strconv.Itoa(n+1)))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if v := get(t, s, "a", "n"); string(v) != strconv.Itoa(writers*each) {
		t.Errorf("counted to %s instead of %d", v, writers*each)
	}
}

func testSnapshot(t *testing.T, s Store) {
	put(t, s, "a", "k", "old")
	wrote := make(chan error, 1)
	check(t, s.View(func(tx Tx) error {
		go func() { wrote <- s.Update(func(tx Tx) error { return tx.Put("a", "k", []byte("new")) }) }()
		for range 100 {
			if v, err := tx.Get("a", "k"); err != nil || string(v) != "old" {
				return fmt.Errorf("a View sees %q, %v", v, err)
			}
		}
		return nil
	}))
	check(t, <-wrote)
	if v := get(t, s, "a", "k"); string(v) != "new" {
		t.Errorf("got %q", v)
	}
}

func TestBoltOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := OpenBolt(path)
	check(t, err)
	put(t, s, "a", "k", "v")
	_, err = OpenBolt(path)
	if err == nil || !strings.Contains(err.Error(), path+" is in use") {
		t.Errorf("a second opening: %v", err)
	}
	oneLine(t, err)
	check(t, s.Close())
	s, err = OpenBolt(path)
	check(t, err)
	if v := get(t, s, "a", "k"); string(v) != "v" {
		t.Errorf("after reopening: %q", v)
	}
	check(t, s.Close())
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the store is readable by others: %v, %v", info.Mode(), err)
	}
}

// TestBoltForbidden opens a store as a user who may not.
func TestBoltForbidden(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o711))
	path := filepath.Join(dir, "store.db")
	s, err := OpenBolt(path)
	check(t, err)
	check(t, s.Close())
	opened := make(chan error)
	go func() { // ends with its thread, which is not let go: it is another user's now
		runtime.LockOSThread()
		_ = unix.Setfsuid(65534) // nobody; without effect for a user who is not root, who owns the file
		s, err := OpenBolt(path)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	switch err := <-opened; {
	case os.Getuid() != 0:
		t.Skip("only root can become somebody else")
	case err == nil || !strings.Contains(err.Error(), "no permission to open "+path):
		t.Errorf("got %v", err)
	default:
		oneLine(t, err)
	}
}

// TestBoltDamaged damages a store in every way that a disk may.
func TestBoltDamaged(t *testing.T) {
	const page = 4096
	dir := t.TempDir()
	path := filepath.Join(dir, "good.db")
	s, err := OpenBolt(path)
	check(t, err)
	check(t, s.Update(func(tx Tx) error {
		for i := range 200 {
			check(t, tx.Put("a", strconv.Itoa(i), make([]byte, 1000)))
		}
		return nil
	}))
	check(t, s.Close())
	good, err := os.ReadFile(path)
	check(t, err)
	filled := func(from, to int) []byte {
		b := slices.Clone(good)
		for i := from; i < to; i++ {
			b[i] = 0xa5
		}
		return b
	}
	for name, content := range map[string][]byte{
		"text": []byte("this is no store"), "zeros": make([]byte, 16*page), "no meta": filled(0, 2*page), "a page": filled(5*page, 6*page),
		"all pages": filled(2*page, len(good)), "cut in half": good[:len(good)/2], "two pages": good[:2*page], "one and a half": good[:page+page/2],
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			check(t, os.WriteFile(path, content, 0o600))
			for range 2 { // the first must not keep the lock
				s, err := OpenBolt(path)
				if err == nil {
					check(t, s.Close())
					t.Fatal("opened")
				}
				if !strings.Contains(err.Error(), path+" is damaged") || !strings.Contains(err.Error(), "backup") {
					t.Errorf("got %v", err)
				}
				oneLine(t, err)
			}
		})
	}
}

func TestNewOnAStoreWithDamagedEntries(t *testing.T) {
	for bucket, key := range map[string]string{bucketNodes: "ff", bucketRevoked: "ff", bucketLimits: limitsKey} {
		w := newNetwork(t, "100.80.0.0/16")
		put(t, w.store, bucket, key, "{")
		_, err := New(Config{Network: w.network, Self: w.self, Keys: w.keys, Chain: func() [][]byte { return *w.chain.Load() }, Issuer: w.issuer, Store: w.store})
		if err == nil {
			t.Errorf("%s: a hub starts on it", bucket)
		}
		oneLine(t, err)
	}
}
