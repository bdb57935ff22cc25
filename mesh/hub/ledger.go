package hub

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Why a hub refuses. The texts that wrap these are one line for the user.
var (
	ErrTokenUnknown = errors.New("token is not known")
	ErrTokenUsed    = errors.New("token is used up")
	ErrTokenExpired = errors.New("token has expired")
	ErrTokenRevoked = errors.New("token has been revoked")
	ErrNameTaken    = errors.New("name is taken")
	ErrFull         = errors.New("no addresses are left")
	ErrRevoked      = errors.New("node has been revoked")
	ErrRefused      = errors.New("refused")
	ErrClock        = errors.New("clocks differ")
	ErrNotNow       = errors.New("not now") // the hub cannot tell; it may have admitted the same keys before
)

// Buckets of the store.
const (
	bucketNodes   = "nodes"   // hex ID → nodeEntry
	bucketNames   = "names"   // name → hex ID, of nodes that are not removed
	bucketHosts   = "hosts"   // host number, 8 hex digits → hex ID
	bucketTokens  = "tokens"  // hex token ID → tokenEntry
	bucketRevoked = "revoked" // hex ID → cert.Revocation
	bucketLimits  = "limits"  // limitsKey → sites.Limits
)

// nodeEntry is a node in the store. It stays when the node is removed, so that a key
// keeps its addresses, unless there are no others left; see freeHost.
type nodeEntry struct {
	ID      peer.ID   `json:"id"`
	Name    string    `json:"name"`
	Site    string    `json:"site"`
	Host    uint32    `json:"host"` // number within both prefixes
	Roles   peer.Role `json:"roles,omitempty"`
	SignKey []byte    `json:"sign_key"`
	Token   string    `json:"token,omitempty"` // hex ID of the one that admitted it last
	Chain   [][]byte  `json:"chain"`
	Joined  time.Time `json:"joined"`
	Revoked bool      `json:"revoked,omitempty"`
	Removed bool      `json:"removed,omitempty"`
}

// tokenEntry is a token in the store, without its secret.
type tokenEntry struct {
	Hash    []byte    `json:"hash"` // of the secret
	Site    string    `json:"site"`
	Uses    int       `json:"uses"` // left
	Expires time.Time `json:"expires"`
	Created time.Time `json:"created"`
	Revoked bool      `json:"revoked,omitempty"`
}

// ledger is what the hub knows for good: the meaning of the store's buckets.
type ledger struct {
	store   Store
	network peer.Network
	issuer  *cert.Issuer
}

func load[T any](tx Tx, bucket, key string) (v T, ok bool, err error) {
	b, err := tx.Get(bucket, key)
	if err != nil || b == nil {
		return v, false, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, false, fmt.Errorf("hub: store: %s %s is damaged: %w", bucket, key, err)
	}
	return v, true, nil
}

func save(tx Tx, bucket, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Put(bucket, key, b)
}

func idKey(id peer.ID) string { return hex.EncodeToString(id[:]) }

// renew issues a new certificate for a node in good standing, or returns the one
// it has, and false, if that holds and has not lived half of its life: whoever asks
// again and again costs neither signatures nor the disk.
func (l *ledger) renew(id peer.ID, now time.Time) (chain [][]byte, fresh bool, err error) {
	err = l.store.View(func(tx Tx) error {
		e, err := standing(tx, id)
		if err != nil {
			return err
		}
		chain = e.Chain
		n, err := cert.Inspect(chain, l.network.Root)
		fresh = err != nil || now.Before(n.NotBefore) || !now.Before(halfLife(n))
		return nil
	})
	if err != nil || !fresh {
		return chain, false, err
	}
	err = l.store.Update(func(tx Tx) error {
		e, err := standing(tx, id)
		if err != nil {
			return err
		}
		if chain, err = l.issuer.Issue(l.node(e), now); err != nil {
			return err
		}
		e.Chain = chain
		return save(tx, bucketNodes, idKey(id), e)
	})
	return chain, err == nil, err
}

// halfLife is when a node's certificate is to be renewed.
func halfLife(n peer.Node) time.Time { return n.NotBefore.Add(n.NotAfter.Sub(n.NotBefore) / 2) }

// standing returns the entry of a node that may take part.
func standing(tx Tx, id peer.ID) (nodeEntry, error) {
	e, ok, err := load[nodeEntry](tx, bucketNodes, idKey(id))
	switch {
	case err != nil:
		return e, err
	case !ok:
		return e, fmt.Errorf("%w: this hub never admitted it; join with a new token", ErrRefused)
	case e.Revoked:
		return e, fmt.Errorf("%w; join with a new token from an empty state directory", ErrRevoked)
	case e.Removed:
		return e, fmt.Errorf("%w: node %s was removed from the network; join with a new token", ErrRefused, e.Name)
	}
	return e, nil
}

// good reports whether a node may take part, as an error if not.
func (l *ledger) good(id peer.ID) error {
	return l.store.View(func(tx Tx) error { _, err := standing(tx, id); return err })
}

// each calls f for every node's entry.
func (l *ledger) each(f func(nodeEntry)) error {
	return l.store.View(func(tx Tx) error {
		return tx.Each(bucketNodes, func(_ string, v []byte) error {
			var e nodeEntry
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("hub: store: a node's entry is damaged: %w", err)
			}
			f(e)
			return nil
		})
	})
}

// byName finds the entry of a node in the network by its name.
func byName(tx Tx, name string) (nodeEntry, error) {
	id, err := tx.Get(bucketNames, name)
	if err != nil {
		return nodeEntry{}, err
	}
	if id == nil {
		return nodeEntry{}, fmt.Errorf("hub: no node is called %q; see meshctl status", name)
	}
	e, ok, err := load[nodeEntry](tx, bucketNodes, string(id))
	if err == nil && !ok {
		err = fmt.Errorf("hub: store: the entry of %s is missing", name)
	}
	return e, err
}

// lastRemoved finds, of the nodes that had a name and were removed, the one that
// joined last. Its zero value says that there is none.
func lastRemoved(tx Tx, name string) (last nodeEntry, err error) {
	err = tx.Each(bucketNodes, func(_ string, v []byte) error {
		var e nodeEntry
		if err := json.Unmarshal(v, &e); err != nil {
			return fmt.Errorf("hub: store: a node's entry is damaged: %w", err)
		}
		if e.Name == name && e.Removed && !e.Revoked && (last.Name == "" || e.Joined.After(last.Joined)) {
			last = e
		}
		return nil
	})
	return last, err
}

// revoke marks a node's keys as no longer good, for ever. A node that was removed
// can still be revoked, since its certificate outlives that.
func (l *ledger) revoke(name string, now time.Time) (e nodeEntry, r cert.Revocation, err error) {
	err = l.store.Update(func(tx Tx) error {
		var missing error
		if e, missing = byName(tx, name); missing == nil {
			err = tx.Delete(bucketNames, name)
		} else if e, err = lastRemoved(tx, name); err == nil && e.Name == "" {
			err = missing
		}
		if err != nil {
			return err
		}
		if r, err = l.issuer.Revoke(l.node(e), now); err != nil {
			return err
		}
		e.Revoked = true
		if err := save(tx, bucketRevoked, idKey(e.ID), r); err != nil {
			return err
		}
		return save(tx, bucketNodes, idKey(e.ID), e)
	})
	return e, r, err
}

// remove takes a node out of the network; its name becomes free.
func (l *ledger) remove(name string) (e nodeEntry, err error) {
	err = l.store.Update(func(tx Tx) error {
		if e, err = byName(tx, name); err != nil {
			return err
		}
		e.Removed = true
		if err := tx.Delete(bucketNames, name); err != nil {
			return err
		}
		return save(tx, bucketNodes, idKey(e.ID), e)
	})
	return e, err
}

// revocations returns those that still matter.
func (l *ledger) revocations(now time.Time) (list []cert.Revocation, err error) {
	err = l.store.View(func(tx Tx) error {
		return tx.Each(bucketRevoked, func(_ string, v []byte) error {
			var r cert.Revocation
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("hub: store: a revocation is damaged: %w", err)
			}
			if !r.Moot(now) {
				list = append(list, r)
			}
			return nil
		})
	})
	return list, err
}
