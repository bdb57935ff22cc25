package hub

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/meshmpi/meshmpi/mesh/sites"
)

// limitsKey is the only key of its bucket: the limits are one value, so that a
// change is seen whole or not at all.
const limitsKey = "sites"

// Limits returns what is declared of the sites' links.
func (h *Hub) Limits() sites.Limits { return h.board.declared() }

// ChangeLimits has change turn what is declared of the sites' links into what is
// to be, keeps that and has every node told. It returns what holds now: where
// nothing differs, and on an error, that is what held before. change may be
// called more than once and must only compute.
func (h *Hub) ChangeLimits(change func(sites.Limits) (sites.Limits, error)) (sites.Limits, error) {
	h.deciding.Lock()
	defer h.deciding.Unlock()
	l, err := h.ledger.changeLimits(change, h.cfg.Now())
	if err != nil {
		return h.board.declared(), err
	}
	h.board.declare(l)
	return l, nil
}

// limits returns what is stored.
func (l *ledger) limits() (all sites.Limits, err error) {
	err = l.store.View(func(tx Tx) error {
		all, err = loadLimits(tx)
		return err
	})
	return all, err
}

// changeLimits stores what change makes of what is stored.
func (l *ledger) changeLimits(change func(sites.Limits) (sites.Limits, error), now time.Time) (next sites.Limits, err error) {
	err = l.store.Update(func(tx Tx) error {
		old, err := loadLimits(tx)
		if err != nil {
			return err
		}
		if next, err = change(old); err != nil {
			return err
		}
		if next.Version = old.Version; len(sites.Changes(old, next)) == 0 {
			return nil
		}
		next.Version = versionAfter(old.Version, now)
		if err := next.Check(); err != nil {
			return err
		}
		return save(tx, bucketLimits, limitsKey, next)
	})
	return next, err
}

// versionAfter counts on, and never less than the clock does in milliseconds: a
// hub whose store was restored from a backup must not count numbers again under
// which nodes know something else.
func versionAfter(old uint64, now time.Time) uint64 {
	return max(old+1, uint64(max(now.UnixMilli(), 0)))
}

func loadLimits(tx Tx) (sites.Limits, error) {
	b, err := tx.Get(bucketLimits, limitsKey)
	if err != nil || b == nil {
		return sites.Limits{}, err
	}
	l, err := sites.Parse(b)
	if err != nil {
		return l, fmt.Errorf("hub: store: the limits of sites are damaged: %w", err)
	}
	return l, nil
}

// declared returns the limits on the board.
func (b *board) declared() sites.Limits {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limits
}

// declare puts limits on the board and has everybody told.
func (b *board) declare(l sites.Limits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.Version == b.limits.Version {
		return
	}
	b.limits = l
	for _, s := range b.sessions {
		s.redeclared()
	}
}

// redeclared notes that the limits are to be sent: those that hold when it comes
// to it, so that a slow reader costs one message however often they change.
func (s *session) redeclared() {
	s.mu.Lock()
	s.limits = true
	s.mu.Unlock()
	s.poke()
}

// limitsMessage says what is declared.
func (b *board) limitsMessage() (message, error) {
	raw, err := json.Marshal(b.declared())
	return message{Type: typeLimits, Limits: raw}, err
}

// limits is the node's end: it passes on what anybody may declare.
func (e *ear) limits(m message) {
	l, err := sites.Parse(m.Limits)
	if err != nil {
		e.l.c.bad.Add(1)
		e.l.c.log.Debug("limits", "hub", e.l.addr, "err", err)
		return
	}
	e.l.c.cfg.Events.Limits(e.l.addr, l)
}
