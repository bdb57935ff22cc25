package hub

import (
	"bytes"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
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
)

// Buckets of the store.
const (
	bucketNodes   = "nodes"   // hex ID → nodeEntry
	bucketNames   = "names"   // name → hex ID, of nodes that are not removed
	bucketHosts   = "hosts"   // host number, 8 hex digits → hex ID
	bucketTokens  = "tokens"  // hex token ID → tokenEntry
	bucketRevoked = "revoked" // hex ID → cert.Revocation
)

// nodeEntry is a node in the store. It is never deleted, so that a key keeps
// its addresses.
type nodeEntry struct {
	ID      peer.ID   `json:"id"`
	Name    string    `json:"name"`
	Site    string    `json:"site"`
	Host    uint32    `json:"host"` // number within both prefixes
	Roles   peer.Role `json:"roles,omitempty"`
	SignKey []byte    `json:"sign_key"`
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

// applicant is who asks to be admitted.
type applicant struct {
	id      peer.ID
	signKey []byte
	name    string
	site    string
	roles   peer.Role
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

// admit checks the token, if there is one, uses it once, and enters the
// applicant, all in one transaction. A key that was here before keeps its
// addresses.
func (l *ledger) admit(t *token.Token, a applicant, now time.Time) (n peer.Node, chain [][]byte, err error) {
	err = l.store.Update(func(tx Tx) error {
		if t != nil {
			if a.site, err = useToken(tx, *t, a.site, now); err != nil {
				return err
			}
		}
		e, err := l.enter(tx, a, now)
		if err != nil {
			return err
		}
		n = l.node(e)
		if chain, err = l.issuer.Issue(n, now); err != nil {
			return err
		}
		if n, err = cert.Verify(chain, l.network.Root, now); err != nil {
			return err
		}
		e.Chain = chain
		return save(tx, bucketNodes, idKey(a.id), e)
	})
	return n, chain, err
}

// useToken takes one use from a token and returns the site that it is for.
func useToken(tx Tx, t token.Token, site string, now time.Time) (string, error) {
	key := hex.EncodeToString(t.ID[:])
	e, ok, err := load[tokenEntry](tx, bucketTokens, key)
	if err != nil {
		return "", err
	}
	hash := t.SecretHash()
	switch {
	case !ok || subtle.ConstantTimeCompare(e.Hash, hash[:]) != 1:
		return "", fmt.Errorf("%w to this hub; ask for a new one (meshctl token create)", ErrTokenUnknown)
	case e.Revoked:
		return "", fmt.Errorf("%w; ask for a new one (meshctl token create)", ErrTokenRevoked)
	case !e.Expires.IsZero() && now.After(e.Expires):
		return "", fmt.Errorf("%w on %s; ask for a new one (meshctl token create), or check this machine's and the hub's clock", ErrTokenExpired, e.Expires.UTC().Format(time.RFC3339))
	case e.Uses <= 0:
		return "", fmt.Errorf("%w; ask for a new one (meshctl token create --uses N)", ErrTokenUsed)
	}
	e.Uses--
	if e.Site != "" {
		site = e.Site
	}
	return site, save(tx, bucketTokens, key, e)
}

// enter makes or renews the applicant's entry.
func (l *ledger) enter(tx Tx, a applicant, now time.Time) (nodeEntry, error) {
	if err := errors.Join(cert.ValidLabel(a.name), cert.ValidLabel(a.site)); err != nil {
		return nodeEntry{}, err
	}
	key := idKey(a.id)
	e, known, err := load[nodeEntry](tx, bucketNodes, key)
	if err != nil {
		return nodeEntry{}, err
	}
	if known && e.Revoked {
		return nodeEntry{}, fmt.Errorf("%w: its keys were those of %s; remove its state directory and join with a new token", ErrRevoked, e.Name)
	}
	if known && !bytes.Equal(e.SignKey, a.signKey) {
		return nodeEntry{}, fmt.Errorf("%w: the WireGuard key is that of %s, the signing key is not", ErrRefused, e.Name)
	}
	holder, err := tx.Get(bucketNames, a.name)
	if err != nil {
		return nodeEntry{}, err
	}
	if holder != nil && string(holder) != key {
		h, _, err := load[nodeEntry](tx, bucketNodes, string(holder))
		if err != nil {
			return nodeEntry{}, err
		}
		return nodeEntry{}, fmt.Errorf("%w: %s is a node at site %s since %s; choose another with --name, or on a hub run meshctl node remove %s",
			ErrNameTaken, a.name, h.Site, h.Joined.UTC().Format(time.DateOnly), a.name)
	}
	if !known {
		e = nodeEntry{ID: a.id, SignKey: a.signKey, Joined: now}
		if e.Host, err = l.freeHost(tx); err != nil {
			return nodeEntry{}, err
		}
		if err := tx.Put(bucketHosts, hostKey(e.Host), []byte(key)); err != nil {
			return nodeEntry{}, err
		}
	} else if e.Name != a.name && !e.Removed {
		if err := tx.Delete(bucketNames, e.Name); err != nil {
			return nodeEntry{}, err
		}
	}
	e.Name, e.Site, e.Roles, e.Removed = a.name, a.site, a.roles, false
	return e, tx.Put(bucketNames, e.Name, []byte(key))
}

func hostKey(n uint32) string { return fmt.Sprintf("%08x", n) }

// freeHost returns the lowest host number that nobody ever had, or, when the
// prefix is exhausted, the lowest whose node was removed.
func (l *ledger) freeHost(tx Tx) (uint32, error) {
	last := uint32(1)<<(32-l.network.CIDR4.Bits()) - 2 // neither network nor broadcast address
	next, removed := uint32(1), uint32(0)
	err := tx.Each(bucketHosts, func(key string, id []byte) error {
		if key == hostKey(next) {
			next++
		}
		if removed != 0 {
			return nil
		}
		e, ok, err := load[nodeEntry](tx, bucketNodes, string(id))
		if err == nil && ok && e.Removed && !e.Revoked {
			removed = e.Host
		}
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case next <= last:
		return next, nil
	case removed != 0:
		id, err := tx.Get(bucketHosts, hostKey(removed))
		if err != nil {
			return 0, err
		}
		return removed, tx.Delete(bucketNodes, string(id))
	}
	return 0, fmt.Errorf("%w in %s; remove nodes that have left (meshctl node remove)", ErrFull, l.network.CIDR4)
}

// node returns what a certificate will say of an entry.
func (l *ledger) node(e nodeEntry) peer.Node {
	return peer.Node{ID: e.ID, Name: e.Name, Site: e.Site, Roles: e.Roles, SignKey: e.SignKey,
		Addr4: addrOf(l.network.CIDR4, e.Host), Addr6: addrOf(l.network.CIDR6, e.Host)}
}

// addrOf returns the host-th address of a prefix.
func addrOf(p netip.Prefix, host uint32) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := len(b) - 1; host > 0 && i >= 0; i-- {
		b[i] |= byte(host)
		host >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// renew issues a new certificate for a node in good standing.
func (l *ledger) renew(id peer.ID, now time.Time) (chain [][]byte, err error) {
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
	return chain, err
}

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

// revoke marks a node's keys as no longer good, for ever.
func (l *ledger) revoke(name string, now time.Time) (e nodeEntry, r cert.Revocation, err error) {
	err = l.store.Update(func(tx Tx) error {
		if e, err = byName(tx, name); err != nil {
			return err
		}
		if r, err = l.issuer.Revoke(l.node(e), now); err != nil {
			return err
		}
		e.Revoked = true
		if err := tx.Delete(bucketNames, name); err != nil {
			return err
		}
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
