package hub

import (
	"errors"
)

// Store keeps what a hub must not forget, as named buckets of keys and values.
// What the buckets mean is the ledger's business; engines only keep bytes and
// make transactions atomic, so that another engine is one small file and the
// conformance suite in store_test.go.
type Store interface {
	// View runs f on a consistent snapshot.
	View(f func(Tx) error) error
	// Update runs f and keeps what it changed if it returns nil, all or nothing,
	// as if no other transaction ran at the same time. f may be run again.
	Update(f func(Tx) error) error
	Close() error
}

// Tx is one transaction. It must not be used after its function has returned.
type Tx interface {
	// Get returns the value of a key, or nil. The caller owns it.
	Get(bucket, key string) ([]byte, error)
	Put(bucket, key string, value []byte) error
	Delete(bucket, key string) error
	// Each calls f for every key of the bucket, in byte order, until f fails.
	Each(bucket string, f func(key string, value []byte) error) error
}

// errReadOnly says that a View tried to write.
var errReadOnly = errors.New("hub: store: write in a read-only transaction")
