package mpi

import (
	"log/slog"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/meshmpi/meshmpi/mpi/coll"
	"github.com/meshmpi/meshmpi/shaper/hint"
)

// What this process tells the pacer of its node: the all-to-all operations that are
// under way in communicators of several sites, and the rates that programs set. The
// preload library does the same for programs in C and Fortran; they share variables.

// Variables that say whom to tell, and what a job asks for as a whole.
const (
	envHints   = "MESH_HINTS"   // WithHints; 0 or off: tell nobody
	envState   = "MESH_STATE"   // meshd's state directory, where the socket is otherwise
	envMATB    = "MESH_MATB"    // meshrun --matb, bits per second
	envPattern = "MESH_PATTERN" // meshrun --pattern
)

// WithHints names the socket at which the node's daemon takes what programs say of
// their traffic; empty: nothing is said. Without the option it is what MESH_HINTS
// names, else hints.sock in MESH_STATE; ranks of a test tell nothing then. That no
// daemon listens is no error, and one that comes later is found.
func WithHints(socket string) Option { return func(o *options) { o.hints = &socket } }

// hints is a process's page. A nil one tells nothing.
type hints struct {
	page *hint.Page
	base int64 // MATB for the whole job, bits per second; 0: none

	mu     sync.RWMutex // guards what follows, and is held by who uses page, which must not be closed then
	closed bool
	owner  *attrs // of the communicator whose MATB is in force; nil: the job's is
}

// openHints makes the page of a rank, a process of its own or one of a test, in a
// world of such a topology; nil where nobody is to be told, or nothing can be.
func openHints(o *options, process bool, env func(string) string, world *coll.Topo) *hints {
	socket := ""
	switch {
	case o.hints != nil:
		socket = *o.hints
	case process:
		socket = hintSocket(env)
	}
	if socket == "" {
		return nil
	}
	page, err := hint.Dial(socket)
	if err != nil {
		if o.log != nil {
			o.log.Warn("the pacer is told nothing of this process", "err", err)
		}
		return nil
	}
	h := &hints{page: page, base: jobRate(env(envMATB), o.log)}
	if h.base > 0 {
		page.SetMATB(h.base)
	}
	if parts := partsOf(env(envPattern), hostsHere(world)); parts > 0 {
		page.SetParts(parts)
	}
	return h
}

// hintSocket is where the environment says that the daemon is; empty: nowhere.
func hintSocket(env func(string) string) string {
	own := env(envHints)
	switch {
	case own == "0" || own == "off":
		return ""
	case strings.HasPrefix(own, "/"):
		return own
	}
	state := env(envState)
	if state == "" {
		state = "/var/lib/meshd"
	}
	return filepath.Join(state, "hints.sock")
}

// jobRate reads the rate of a whole job. A wrong one is no reason to end a program
// that runs without a pacer as well.
func jobRate(s string, log *slog.Logger) int64 {
	if s == "" {
		return 0
	}
	bits, err := strconv.ParseInt(s, 10, 64)
	if err != nil || bits < 0 {
		if log != nil {
			log.Warn(envMATB+" is no number of bits per second, and ignored", "value", s)
		}
		return 0
	}
	return min(bits, hint.MaxMATB)
}

// partsOf is by what B is divided for a node in a job of n hosts at its site, by
// GridMPI's table: n for an all-to-all and its like, n/2 for CG, 2√(2n) for BT and
// SP. More than n is never needed, since n nodes at B/n fill the link; less than 1
// is not there. 0: no pattern is known, or nothing leaves the site.
func partsOf(pattern string, n int) int64 {
	most := int64(n) * hint.Whole
	var parts int64
	switch pattern {
	case "alltoall", "ft", "is", "lu", "mg":
		parts = most
	case "cg":
		parts = most / 2
	case "bt", "sp":
		parts = int64(math.Sqrt(8 * float64(n) * hint.Whole * hint.Whole))
	}
	if parts == 0 {
		return 0
	}
	return min(max(parts, hint.Whole), most)
}

// hostsHere counts the hosts of the caller's site; 0 where all ranks are there, and
// nothing leaves it. A host is new at the rank that has the next number (Comm.Host).
func hostsHere(t *coll.Topo) (n int) {
	next, away := int32(0), false
	for i, host := range t.Host {
		here := t.Site[i] == t.Site[t.Rank]
		away = away || !here
		if host != next {
			continue
		}
		if next++; here {
			n++
		}
	}
	if !away {
		return 0
	}
	return n
}

// mark is an operation of which the pacer is told. The zero one is none.
type mark struct {
	to    *hints
	op    hint.Op
	hosts int // of this site that take part
}

// paced has a run on an intracommunicator of several sites be told of while it is
// under way.
func (c *Comm) paced(op hint.Op, r *run) *run {
	if c.w.hints == nil {
		return r
	}
	if n := hostsHere(&c.topo); n > 0 {
		r.mark = mark{c.w.hints, op, n}
	}
	return r
}

func (m *mark) enter() {
	m.to.mu.RLock()
	defer m.to.mu.RUnlock()
	if m.to.closed || !m.to.page.Enter(m.op, m.hosts) {
		m.to = nil // nothing to leave
	}
}

// leave ends what enter began, once.
func (m *mark) leave() {
	to := m.to
	m.to = nil
	to.mu.RLock()
	defer to.mu.RUnlock()
	if !to.closed {
		to.page.Leave(m.op, m.hosts)
	}
}

// inForce has a rate that a communicator's MATB was set to count from now on.
func (h *hints) inForce(a *attrs, r Rate) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if h.owner = a; r <= 0 {
		h.owner, r = nil, Rate(h.base)
	}
	h.page.SetMATB(int64(min(r, hint.MaxMATB)))
}

// withdrawn is called when a communicator's MATB is gone: the job's holds again, if
// it was in force.
func (h *hints) withdrawn(a *attrs) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.owner != a {
		return
	}
	h.owner = nil
	h.page.SetMATB(h.base)
}

// maxRate is what the daemon says of the site's link; 0: nothing.
func (h *hints) maxRate() Rate {
	if h == nil {
		return 0
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return 0
	}
	return Rate(h.page.MaxRate())
}

// close takes the page from the daemon. Operations that are still under way end
// without it.
func (h *hints) close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		_ = h.page.Close() // cannot fail in a way that matters at the end
	}
}
