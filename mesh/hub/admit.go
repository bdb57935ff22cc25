package hub

import (
	"bytes"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// applicant is who asks to be admitted.
type applicant struct {
	id      peer.ID
	signKey []byte
	name    string
	site    string
	roles   peer.Role
	token   string // hex ID of the token shown, or ""
}

// admit checks the token, if there is one, uses it once, and enters the
// applicant, all in one transaction. A key that was here before keeps its
// addresses. Who asks again with the token and the name that admitted it spends
// no further use: the answer may have been lost.
func (l *ledger) admit(t *token.Token, a applicant, now time.Time) (n peer.Node, chain [][]byte, err error) {
	err = l.store.Update(func(tx Tx) error {
		if t != nil {
			if err = useToken(tx, *t, &a, now); err != nil {
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

// useToken takes one use from a token and notes in a what the token says.
func useToken(tx Tx, t token.Token, a *applicant, now time.Time) error {
	key := hex.EncodeToString(t.ID[:])
	e, ok, err := load[tokenEntry](tx, bucketTokens, key)
	if err != nil {
		return err
	}
	before, known, err := load[nodeEntry](tx, bucketNodes, idKey(a.id))
	if err != nil {
		return err
	}
	again := known && !before.Removed && before.Token == key && before.Name == a.name
	hash := t.SecretHash()
	switch {
	case !ok || subtle.ConstantTimeCompare(e.Hash, hash[:]) != 1:
		return fmt.Errorf("%w to this hub; ask for a new one (meshctl token create)", ErrTokenUnknown)
	case e.Revoked:
		return fmt.Errorf("%w; ask for a new one (meshctl token create)", ErrTokenRevoked)
	case !e.Expires.IsZero() && now.After(e.Expires):
		return fmt.Errorf("%w on %s; ask for a new one (meshctl token create), or check this machine's and the hub's clock", ErrTokenExpired, e.Expires.UTC().Format(time.RFC3339))
	case e.Uses <= 0 && !again:
		return fmt.Errorf("%w; ask for a new one (meshctl token create --uses N)", ErrTokenUsed)
	}
	a.token = key
	if e.Site != "" {
		a.site = e.Site
	}
	if again {
		return nil
	}
	e.Uses--
	return save(tx, bucketTokens, key, e)
}

// enter makes or renews the applicant's entry.
func (l *ledger) enter(tx Tx, a applicant, now time.Time) (nodeEntry, error) {
	for _, label := range []string{a.name, a.site} {
		if err := cert.ValidLabel(label); err != nil {
			return nodeEntry{}, fmt.Errorf("%w: %w", ErrRefused, err)
		}
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
		if e.Host, err = l.freeHost(tx, now); err != nil {
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
	if e.Removed {
		e.Roles = 0
	}
	e.Name, e.Site, e.Roles, e.Token, e.Removed = a.name, a.site, e.Roles|a.roles, a.token, false
	return e, tx.Put(bucketNames, e.Name, []byte(key))
}

func hostKey(n uint32) string { return fmt.Sprintf("%08x", n) }

// freeHost returns the lowest host number that nobody ever had, or, when the
// prefix is exhausted, one whose node was removed or revoked: the lowest of those with a
// certificate that has expired, since another may still be believed somewhere, and
// else the lowest of those removed. A revoked node is known by its keys for ever.
func (l *ledger) freeHost(tx Tx, now time.Time) (uint32, error) {
	last := uint32(1)<<(32-l.network.CIDR4.Bits()) - 2 // neither network nor broadcast address
	next := uint32(1)
	err := tx.Each(bucketHosts, func(key string, _ []byte) error {
		if key != hostKey(next) {
			return errFound
		}
		next++
		return nil
	})
	if err != nil && err != errFound {
		return 0, err
	}
	if next <= last {
		return next, nil
	}
	var free nodeEntry
	err = tx.Each(bucketHosts, func(_ string, id []byte) error {
		e, ok, err := load[nodeEntry](tx, bucketNodes, string(id))
		if err != nil || !ok || !e.Removed && !e.Revoked {
			return err
		}
		if expired(e.Chain, now) {
			free = e
			return errFound
		}
		if free.Host == 0 && !e.Revoked {
			free = e
		}
		return nil
	})
	switch {
	case err != nil && err != errFound:
		return 0, err
	case free.Host == 0:
		return 0, fmt.Errorf("%w in %s; remove nodes that have left (meshctl node remove)", ErrFull, l.network.CIDR4)
	}
	if free.Revoked {
		return free.Host, nil
	}
	return free.Host, tx.Delete(bucketNodes, idKey(free.ID))
}

// expired reports whether a chain that the hub issued no longer holds.
func expired(chain [][]byte, now time.Time) bool {
	if len(chain) == 0 {
		return true
	}
	leaf, err := x509.ParseCertificate(chain[0])
	return err != nil || now.After(leaf.NotAfter)
}

// errFound ends a walk that has found what it looks for.
var errFound = errors.New("found")

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
