package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// lockTime is how long opening a store waits for another process to let go.
const lockTime = 2 * time.Second

// boltStore is the embedded engine: one file, one process.
type boltStore struct{ db *bbolt.DB }

var _ Store = (*boltStore)(nil)

// OpenBolt opens the embedded store, making the file if there is none.
func OpenBolt(path string) (Store, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("hub: %s is in use by another process; stop the other meshd first", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("hub: %s is damaged (%w); restore it from a backup", path, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("hub: no permission to open %s; run meshd as the user that ran meshd init", path)
	case err != nil:
		return nil, fmt.Errorf("hub: open %s: %w", path, err)
	}
	return &boltStore{db}, nil
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
