package hub

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// Limits of tokens.
const (
	defaultTTL = 24 * time.Hour
	maxTTL     = 365 * 24 * time.Hour
	maxUses    = 100_000
)

// TokenInfo is what may be told of a token.
type TokenInfo struct {
	ID      string // hexadecimal
	Site    string
	Uses    int // left
	Expires time.Time
	State   string // good, used, expired or revoked
}

// NodeInfo is what the hub knows of a node.
type NodeInfo struct {
	Name, Site       string
	Joined           time.Time
	Up               bool
	Revoked, Removed bool
}

// CreateToken makes a token for nodes of a site ("": this hub's own), good for
// uses nodes and for ttl (0: a day).
func (h *Hub) CreateToken(site string, uses int, ttl time.Duration) (token.Token, error) {
	if site == "" {
		site = h.cfg.Self.Site
	}
	if ttl == 0 {
		ttl = defaultTTL
	}
	if err := cert.ValidLabel(site); err != nil {
		return token.Token{}, err
	}
	if uses < 1 || uses > maxUses || ttl < 0 || ttl > maxTTL {
		return token.Token{}, fmt.Errorf("hub: a token is good for 1 to %d uses and at most a year, not for %d uses and %v", maxUses, uses, ttl)
	}
	now := h.cfg.Now()
	t, err := token.New(h.cfg.Network.Name, h.cfg.Network.Root, h.cfg.Advertise, site, now.Add(ttl))
	if err != nil {
		return token.Token{}, err
	}
	hash := t.SecretHash()
	e := tokenEntry{Hash: hash[:], Site: site, Uses: uses, Expires: t.Expires, Created: now}
	return t, h.ledger.store.Update(func(tx Tx) error { return save(tx, bucketTokens, hex.EncodeToString(t.ID[:]), e) })
}

// Tokens lists all tokens, newest first.
func (h *Hub) Tokens() ([]TokenInfo, error) {
	type dated struct {
		TokenInfo
		created time.Time
	}
	var list []dated
	now := h.cfg.Now()
	err := h.ledger.store.View(func(tx Tx) error {
		return tx.Each(bucketTokens, func(id string, v []byte) error {
			var e tokenEntry
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("hub: store: token %s is damaged: %w", id, err)
			}
			list = append(list, dated{TokenInfo{id, e.Site, e.Uses, e.Expires, e.state(now)}, e.Created})
			return nil
		})
	})
	slices.SortFunc(list, func(a, b dated) int { return b.created.Compare(a.created) })
	out := make([]TokenInfo, len(list))
	for i := range list {
		out[i] = list[i].TokenInfo
	}
	return out, err
}

func (e tokenEntry) state(now time.Time) string {
	switch {
	case e.Revoked:
		return "revoked"
	case now.After(e.Expires):
		return "expired"
	case e.Uses <= 0:
		return "used"
	}
	return "good"
}

// RevokeToken makes a token worthless.
func (h *Hub) RevokeToken(id string) error {
	return h.ledger.store.Update(func(tx Tx) error {
		e, ok, err := load[tokenEntry](tx, bucketTokens, id)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("hub: no token has the ID %q; see meshctl token list", id)
		}
		e.Revoked = true
		return save(tx, bucketTokens, id, e)
	})
}

// Nodes lists every node that was ever admitted, by name.
func (h *Hub) Nodes() ([]NodeInfo, error) {
	var list []NodeInfo
	err := h.ledger.each(func(e nodeEntry) {
		r, _ := h.board.record(e.ID)
		list = append(list, NodeInfo{e.Name, e.Site, e.Joined, r.Up, e.Revoked, e.Removed})
	})
	slices.SortFunc(list, func(a, b NodeInfo) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Joined.Compare(b.Joined))
	})
	return list, err
}

// RevokeNode cuts a node off for good: its keys are refused by every node that
// hears of it, its session and its relay binding end now.
func (h *Hub) RevokeNode(name string) error {
	if name == h.cfg.Self.Name {
		return fmt.Errorf("hub: %s is this hub itself; revoke it on another hub", name)
	}
	h.deciding.Lock()
	defer h.deciding.Unlock()
	e, r, err := h.ledger.revoke(name, h.cfg.Now())
	if err != nil {
		return err
	}
	h.board.revoke(r)
	if h.cfg.Relay != nil {
		h.cfg.Relay.Revoke(e.ID)
	}
	return nil
}

// RemoveNode takes a node that has left out of the network. Its name becomes
// free; its addresses stay its key's while there are others.
func (h *Hub) RemoveNode(name string) error {
	if name == h.cfg.Self.Name {
		return fmt.Errorf("hub: %s is this hub itself", name)
	}
	h.deciding.Lock()
	defer h.deciding.Unlock()
	e, err := h.ledger.remove(name)
	if err != nil {
		return err
	}
	h.board.remove(e.ID)
	if h.cfg.Relay != nil {
		h.cfg.Relay.Revoke(e.ID)
	}
	return nil
}
