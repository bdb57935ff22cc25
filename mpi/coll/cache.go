package coll

import "sync"

// cacheEntries and cacheSteps bound what a Cache keeps: programs use few different
// operations over and over, and a schedule of many steps moves so many bytes that
// building it again does not matter.
const (
	cacheEntries = 64
	cacheSteps   = 1 << 10
)

// Cache keeps the schedules that one rank of a communicator has used, so that an
// operation that is repeated costs no building. It may be used by several
// goroutines.
type Cache struct {
	topo *Topo

	mu    sync.Mutex // guards what follows
	known map[cacheKey]*Schedule
	last  cacheKey // which was asked for last
	again *Schedule
}

// cacheKey is an operation whose arguments have no slices.
type cacheKey struct {
	c                 Collective
	count, elem, root int
	commutes, inPlace bool
}

// NewCache returns an empty cache for a topology, which it does not copy.
func NewCache(t *Topo) *Cache { return &Cache{topo: t, known: map[cacheKey]*Schedule{}} }

// Get returns the schedule that the constructor of that operation returns.
// Schedules for ranks that differ in their counts are not kept.
func (k *Cache) Get(c Collective, a Args) *Schedule {
	if a.Counts != nil || a.RecvCounts != nil || a.Sources != nil || a.Dests != nil {
		s := choose(c, k.topo, a)
		return &s
	}
	key := cacheKey{c, a.Count, a.Elem, a.Root, a.Commutes, a.InPlace}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.again != nil && k.last == key {
		return k.again
	}
	if s := k.known[key]; s != nil {
		k.last, k.again = key, s
		return s
	}
	s := choose(c, k.topo, a)
	if len(k.known) >= cacheEntries {
		for old := range k.known { // any one: those in use come back
			delete(k.known, old)
			break
		}
	}
	if s.steps() <= cacheSteps {
		k.known[key] = &s
	}
	return &s
}

func (s *Schedule) steps() (n int) {
	for _, r := range s.Rounds {
		n += len(r)
	}
	return n
}
