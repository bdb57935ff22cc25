package hub

import (
	"maps"
	"slices"
	"sync"
)

// memoryStore is the engine for tests: it forgets everything.
type memoryStore struct {
	mu      sync.RWMutex // guards buckets
	buckets map[string]map[string][]byte
}

var _ Store = (*memoryStore)(nil)

// NewMemoryStore returns a store that lives as long as the process.
func NewMemoryStore() Store { return &memoryStore{buckets: map[string]map[string][]byte{}} }

// View implements Store.
func (s *memoryStore) View(f func(Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return f(&memoryTx{buckets: s.buckets})
}

// Update implements Store.
func (s *memoryStore) Update(f func(Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]map[string][]byte, len(s.buckets))
	for name, b := range s.buckets {
		next[name] = maps.Clone(b)
	}
	if err := f(&memoryTx{buckets: next, write: true}); err != nil {
		return err
	}
	s.buckets = next
	return nil
}

// Close implements Store.
func (s *memoryStore) Close() error { return nil }

type memoryTx struct {
	buckets map[string]map[string][]byte
	write   bool
}

func (t *memoryTx) Get(bucket, key string) ([]byte, error) {
	v, ok := t.buckets[bucket][key]
	if !ok {
		return nil, nil
	}
	return append([]byte{}, v...), nil
}

func (t *memoryTx) Put(bucket, key string, value []byte) error {
	if !t.write {
		return errReadOnly
	}
	if t.buckets[bucket] == nil {
		t.buckets[bucket] = map[string][]byte{}
	}
	t.buckets[bucket][key] = append([]byte{}, value...)
	return nil
}

func (t *memoryTx) Delete(bucket, key string) error {
	if !t.write {
		return errReadOnly
	}
	delete(t.buckets[bucket], key)
	return nil
}

func (t *memoryTx) Each(bucket string, f func(string, []byte) error) error {
	b := t.buckets[bucket]
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if err := f(k, append([]byte{}, b[k]...)); err != nil {
			return err
		}
	}
	return nil
}
