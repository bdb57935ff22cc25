package mpi

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// Launcher is what has started the processes of a job and keeps them in touch
// until they talk to each other. A [pmi.Client] is one. One that wraps a client should
// have the client's Joined as well: meshrun waits for that from a job that was spawned.
type Launcher interface {
	Rank() int
	Size() int
	JobID() string
	Appnum() int       // index of the program, where a job has several
	UniverseSize() int // ranks there is room for; 0: not known
	Spawned() bool     // another job has started this one
	FaultTolerant() bool

	Put(key, value string) error
	Get(key string) (string, error)
	GetAll(keys []string) ([]string, error)
	Barrier(ctx context.Context) error

	Publish(name, port string) error
	Lookup(name string) (port string, err error)
	Unpublish(name string) error
	Spawn(ctx context.Context, req pmi.SpawnRequest) (codes []int, err error)

	Notify(f func(pmi.Notice)) (ok bool, err error)
	Abort(code int) error
	Finalize(ctx context.Context) error
	Close() error
}

// Option changes how Init sets a process up.
type Option func(*options)

type options struct {
	launcher   Launcher
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	listen     func(ctx context.Context) (net.Listener, error)
	addresses  []string
	noShared   bool
	streams    bool // WithoutDatagrams
	eagerLimit int
	links      int
	requests   int  // at one time; 0: the engine's own limit
	group      *int // WithGroupLinks
	host, site string
	hostGiven  bool
	room       room    // in tests; zero: as it is
	hints      *string // WithHints
	profile    *string // WithProfile
	log        *slog.Logger
}

// Variables that set for a job what options set for a program. Options come first.
const (
	envAddress  = "MESH_ADDRESS"     // WithAddresses: one or several, separated by commas
	envNoShared = "MESH_NO_SHM"      // not empty: WithoutSharedMemory
	envStreams  = "MESH_NO_UDP"      // not empty: WithoutDatagrams
	envEager    = "MESH_EAGER_LIMIT" // WithEagerLimit
	envLinks    = "MESH_LINKS"       // WithLinks
	envGroup    = "MESH_GROUP_LINKS" // WithGroupLinks
)

// placed is a launcher that knows where the process is, better than variables,
// which some launchers copy from another node. Texts may be empty.
type placed interface {
	Place() (node, site, addr string)
}

// fromLauncher takes what no option has said and the launcher knows.
func (o *options) fromLauncher(l Launcher) {
	p, ok := l.(placed)
	if !ok {
		return
	}
	node, site, addr := p.Place()
	if node != "" && !o.hostGiven {
		o.host, o.site, o.hostGiven = node, site, true
	}
	if addr != "" && len(o.addresses) == 0 {
		o.addresses = []string{addr}
	}
}

// fromEnvironment takes what neither has said.
func (o *options) fromEnvironment(env func(string) string) error {
	if a := env(envAddress); a != "" && len(o.addresses) == 0 {
		for addr := range strings.SplitSeq(a, ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				o.addresses = append(o.addresses, addr)
			}
		}
	}
	o.noShared = o.noShared || env(envNoShared) != ""
	o.streams = o.streams || env(envStreams) != ""
	for _, v := range []struct {
		name string
		to   *int
		most int
	}{{envEager, &o.eagerLimit, 1 << 30}, {envLinks, &o.links, 16}} {
		s := env(v.name)
		if s == "" || *v.to != 0 {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > v.most {
			return fmt.Errorf("%s=%.40q; a number from 1 to %d is allowed", v.name, s, v.most)
		}
		*v.to = n
	}
	s := env(envGroup)
	if s == "" || o.group != nil {
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > mostGroupLinks {
		return fmt.Errorf("%s=%.40q; a number from 0 to %d is allowed", envGroup, s, mostGroupLinks)
	}
	o.group = &n
	return nil
}

// Connections between two sites are shared by themselves when there would be more
// than groupFrom of them: those of 64 ranks with 64. Then there are groupDefault.
const (
	mostGroupLinks = 16
	groupFrom      = 64 * 64
	groupDefault   = 4
)

// groupLinks is how many connections the ranks of two sites are to share, given the
// site of each rank; zero: each pair has its own.
func (o *options) groupLinks(sites []int) int {
	if o.group != nil {
		return min(max(*o.group, 0), mostGroupLinks)
	}
	ranks := map[int]int{}
	for _, s := range sites {
		ranks[s]++
	}
	first, second := 0, 0
	for _, n := range ranks {
		if n > first {
			first, second = n, first
		} else {
			second = max(second, n)
		}
	}
	if first*second > groupFrom {
		return groupDefault
	}
	return 0
}

// WithLauncher has the job be what l says, instead of what the environment does.
func WithLauncher(l Launcher) Option { return func(o *options) { o.launcher = l } }

// WithNetwork replaces TCP on the machine's own interfaces: listen makes what the
// others connect to, dial connects to what theirs say they listen on. A program
// that is a node of the mesh by itself gives those of package overlay.
func WithNetwork(dial func(ctx context.Context, network, address string) (net.Conn, error), listen func(ctx context.Context) (net.Listener, error)) Option {
	return func(o *options) { o.dial, o.listen = dial, listen }
}

// WithAddresses says what to listen on, as host or host:port. Of two processes that
// have several, the first of one is connected to the first of the other, the second
// to the second, and so on: large messages go over all, in proportion to what each
// carries, and small ones over the nearest. A pair that cannot be connected at the
// beginning is left out; one that breaks later is done without, unless it
// is the last: then the other process counts as dead.
func WithAddresses(addrs ...string) Option { return func(o *options) { o.addresses = addrs } }

// WithoutSharedMemory has processes of one host use TCP.
func WithoutSharedMemory() Option { return func(o *options) { o.noShared = true } }

// WithoutDatagrams has all messages between hosts go by TCP alone. Otherwise a small one
// that answers another goes to a near host as a UDP datagram as well, ahead of TCP, which
// is faster, and where datagrams do not arrive they are given up.
func WithoutDatagrams() Option { return func(o *options) { o.streams = true } }

// WithEagerLimit sets the size in bytes up to which messages are sent without
// asking the receiver first. Zero leaves the choice to the library.
func WithEagerLimit(bytes int) Option { return func(o *options) { o.eagerLimit = bytes } }

// WithLinks has n connections, of 1 to 16, go to each process on another host.
// Messages of different communicators and tags then do not wait for each other's
// lost packets, and large messages are sent over all of them.
func WithLinks(n int) Option { return func(o *options) { o.links = n } }

// WithGroupLinks has all ranks of a site share n connections, of 1 to 16, to those
// of each other site: the first n ranks of each site pass the others' messages on.
// Such a rank stays until the others have finalized; if it dies, ranks that talked
// through it count as failed for each other. 0: each pair of ranks has connections
// of its own. Without the option that is decided by the number of ranks: up to 64
// with 64 have their own. All ranks must say the same.
func WithGroupLinks(n int) Option { return func(o *options) { o.group = &n } }

// WithPlace says which host and site the process is on, instead of its
// environment (MESH_NODE and MESH_SITE) and the machine.
func WithPlace(host, site string) Option {
	return func(o *options) { o.host, o.site, o.hostGiven = host, site, true }
}

// WithLogger has the library tell what happens inside. Nil: nothing is told.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }
