package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
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

// openWhole checks every page of the file, if there is one, and opens it. The
// check is a reader of its own, since bbolt opens for writing only with the list
// of free pages, and takes as much memory as that says.
func openWhole(path string) (*bbolt.DB, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err == nil && info.Size() > 0:
		if err := checkFile(path, info.Size()); err != nil {
			return nil, err
		}
	}
	return bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime})
}

func checkFile(path string, size int64) error {
	if size < minSize {
		return errDamaged
	}
	var file *os.File
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime, ReadOnly: true,
		OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		}})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) error { return checkTx(file, tx) })
	return cmp.Or(err, db.Close())
}

// checkTx checks all that a transaction sees: the structure here, then by bbolt
// the order of keys and that no page is lost.
func checkTx(file *os.File, tx *bbolt.Tx) (err error) {
	all, err := io.ReadAll(io.NewSectionReader(file, 0, tx.Size()))
	if err != nil {
		return err
	}
	if int64(len(all)) < tx.Size() {
		return errDamaged
	}
	if err := checkPages(all, tx.DB().Info().PageSize, uint64(tx.ID())); err != nil {
		return err
	}
	for range tx.Check() { // to its end, which ends its goroutine
		err = errDamaged
	}
	return err
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
