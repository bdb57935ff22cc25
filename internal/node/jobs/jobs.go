// Package jobs is where the ranks of a job find their rank 0, under launchers
// that tell ranks no more than their numbers (Open MPI's mpirun, srun without a
// PMI plugin).
//
// Rank 0 serves its job itself (package mpi/pmi) and all it needs is to be
// found. So a meshd, the job's owner, lends it one small record: an address and
// a secret, under the job's key. The record is a lease that rank 0 renews until
// everybody has come; what a dead rank 0 leaves is gone within Lease. A meshd
// that restarts forgets it for a few seconds and disturbs no job that runs.
//
// The package is the book of these records, without any I/O or clock. Who may
// ask, and how questions reach the owner, is for package node.
package jobs

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Port is the TCP port, on a node's virtual address, at which it takes
// questions about jobs from other nodes.
const Port = 7723

// Lease is how long a record lives unless it is put again.
const Lease = 30 * time.Second

// Bounds of what is kept: records of one user, of all, and bytes of a secret.
const (
	MaxOfUser = 64
	MaxAll    = 4096
	MaxSecret = 64
)

// keyLen is the length of a job's key, in hexadecimal digits.
const keyLen = 32

// ErrFull says that there is no room for another record.
var ErrFull = errors.New("too many jobs are meeting")

// ID names a job: its key, and the user whose it is, by the id that he has on
// the owner's host. Users cannot see, or stand in the way of, each other's.
type ID struct {
	UID uint32
	Key string
}

// Check reports what is wrong with a key; it comes from a rank.
func (id ID) Check() error {
	ok := len(id.Key) == keyLen
	for i := 0; ok && i < len(id.Key); i++ {
		c := id.Key[i]
		ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
	}
	if !ok {
		return fmt.Errorf("jobs: %.40q is no key of a job: it has %d hexadecimal digits", id.Key, keyLen)
	}
	return nil
}

// Record says where a job's rank 0 serves.
type Record struct {
	Addr   netip.AddrPort
	Secret string // shows rank 0 that a rank belongs to the job
}

func (r Record) check() error {
	switch {
	case !r.Addr.IsValid() || r.Addr.Port() == 0:
		return errors.New("jobs: rank 0 has no address")
	case r.Secret == "" || len(r.Secret) > MaxSecret:
		return fmt.Errorf("jobs: a secret has 1 to %d bytes", MaxSecret)
	}
	return nil
}

// lease is a record and its end.
type lease struct {
	Record
	until time.Time
}

// Book holds the records of which this node is the owner. Its zero value is
// empty and ready; its methods may be called from any goroutine.
type Book struct {
	mu      sync.Mutex // guards what follows
	leases  map[ID]lease
	of      map[uint32]int // records by user
	changed chan struct{}  // closed by the next new record
}

// Put enters or renews a record until now plus Lease. A record of another rank 0
// under the same key is replaced: launchers' names for jobs come again, and two
// live jobs do not share one.
func (b *Book) Put(now time.Time, id ID, r Record) error {
	if err := oneline.Join(id.Check(), r.check()); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(now)
	old, had := b.leases[id]
	switch {
	case had:
	case b.of[id.UID] >= MaxOfUser:
		return fmt.Errorf("jobs: %w: %d of this user, no more are allowed; try again in a minute", ErrFull, MaxOfUser)
	case len(b.leases) >= MaxAll:
		return fmt.Errorf("jobs: %w: %d at this node, no more are allowed; try again in a minute", ErrFull, MaxAll)
	}
	if b.leases == nil {
		b.leases, b.of = map[ID]lease{}, map[uint32]int{}
	}
	if !had {
		b.of[id.UID]++
	}
	b.leases[id] = lease{r, now.Add(Lease)}
	if old.Record != r && b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return nil
}

// Get returns the record of a job, if it is there. Otherwise later is closed
// when a record has come, perhaps another's.
func (b *Book) Get(now time.Time, id ID) (r Record, ok bool, later <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.leases[id]; ok && now.Before(l.until) {
		return l.Record, true, nil
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return Record{}, false, b.changed
}

// Remove forgets a record, unless a rank 0 at another address has taken its
// place.
func (b *Book) Remove(id ID, addr netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.leases[id]; ok && l.Addr == addr {
		b.drop(id)
	}
}

// Len counts the records that are there.
func (b *Book) Len(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(now)
	return len(b.leases)
}

// sweep forgets what has expired. The caller holds mu.
func (b *Book) sweep(now time.Time) {
	for id, l := range b.leases {
		if !now.Before(l.until) {
			b.drop(id)
		}
	}
}

// drop forgets a record that is there. The caller holds mu.
func (b *Book) drop(id ID) {
	delete(b.leases, id)
	if b.of[id.UID]--; b.of[id.UID] == 0 {
		delete(b.of, id.UID)
	}
}
