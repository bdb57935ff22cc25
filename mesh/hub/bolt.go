package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// lockTime is how long opening a store waits for another process to let go.
const lockTime = 2 * time.Second

// minSize is that of the two pages without which bbolt opens no file, in bytes.
const minSize = 2 << 12

// boltStore is the embedded engine: one file, one process.
type boltStore struct{ db *bbolt.DB }

var _ Store = (*boltStore)(nil)

// OpenBolt opens the embedded store, making the file if there is none. It reads
// all of it once, so that damage shows now and not while nodes join.
func OpenBolt(path string) (Store, error) {
	db, err := openWhole(path)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("hub: %s is in use by another process; stop the other meshd first", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, errDamaged):
		return nil, fmt.Errorf("hub: %s is damaged (%w); restore it from a backup", path, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("hub: no permission to open %s; run meshd as the user that ran meshd init", path)
	case err != nil:
		return nil, fmt.Errorf("hub: open %s: %w", path, err)
	}
	return &boltStore{db}, nil
}

var errDamaged = errors.New("its pages are not those of a store")

// openWhole opens the file and checks every page. bbolt panics on pages that
// make no sense and faults on those that a cut file lacks; both are turned into
// errDamaged.
func openWhole(path string) (db *bbolt.DB, err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, errDamaged
			_ = unix.Flock(int(file.Fd()), unix.LOCK_UN) // the mapping that is left would keep it
			file.Close()
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime, OpenFile: func(name string, flag int, mode fs.FileMode) (*os.File, error) {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 && info.Size() < minSize {
			return nil, errDamaged
		}
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}})
	if err != nil {
		return nil, err
	}
	if err := db.View(checkPages(file)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkPages returns a check of a whole store. bbolt's own runs in a goroutine of
// its own, where a fault could not be caught; so the size of the file is first.
func checkPages(file *os.File) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) (err error) {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return errDamaged
		}
		for range tx.Check() { // to its end, which ends the goroutine
			err = errDamaged
		}
		return err
	}
}

// View implements Store.
func (s *boltStore) View(f func(Tx) error) error {
	return s.db.View(func(tx *bbolt.Tx) error { return f(boltTx{tx}) })
}

// Update implements Store.
func (s *boltStore) Update(f func(Tx) error) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return f(boltTx{tx}) })
}

// Close implements Store.
func (s *boltStore) Close() error { return s.db.Close() }

type boltTx struct{ tx *bbolt.Tx }

func (t boltTx) Get(bucket, key string) ([]byte, error) {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil, nil
	}
	v := b.Get([]byte(key))
	if v == nil {
		return nil, nil
	}
	return append([]byte{}, v...), nil
}

func (t boltTx) Put(bucket, key string, value []byte) error {
	if !t.tx.Writable() {
		return errReadOnly
	}
	b, err := t.tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	return b.Put([]byte(key), value)
}

func (t boltTx) Delete(bucket, key string) error {
	if !t.tx.Writable() {
		return errReadOnly
	}
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.Delete([]byte(key))
}

func (t boltTx) Each(bucket string, f func(string, []byte) error) error {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error { return f(string(k), append([]byte{}, v...)) })
}
