package engine

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what an engine is to be. Its zero values are the defaults.
type Config struct {
	Self Proc // this process, among those of its job
	Size int  // processes of the job, 0 to Size-1; zero: 1

	// Resolve returns the card of a process of the job. It is called from a
	// goroutine, when the process is first needed, and may block until ctx ends.
	// Nil: the Hub's.
	Resolve func(ctx context.Context, p Proc) ([]byte, error)

	// Job tells jobs apart. Processes of one job are found in the table by their
	// number in it, those of others by their cards only.
	Job []byte

	// Hub joins engines of one Go process. Nil: there are none.
	Hub *Hub

	// Dial and Listen replace TCP; what they return is used through its methods
	// only. Listen's addresses go into the card as they are. Nil: sockets of our
	// own, unless Hub is set, which needs none.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(ctx context.Context) (net.Listener, error)

	// Addresses are what to listen on and to publish, as host or host:port. Several
	// are used side by side: links go from the first to a peer's first, from the
	// second to its second, and so on. Nil: those of the machine's interfaces, any
	// of which will do.
	Addresses []string

	SharedMemory bool // between processes of a host; false: they use TCP
	StreamsOnly  bool // nothing goes as a datagram, ahead of TCP

	EagerLimit int // largest message sent without asking, bytes; zero: chosen for each link
	Credit     int // bytes of such messages that a peer may have waiting here; zero: chosen for each link
	Links      int // connections to each peer that is not on this host; zero: 1, or one for each pair of Addresses; at most 16

	MostRequests int           // at one time; zero: 1<<20
	Patience     time.Duration // for a connection to come about; zero: 30 s
	Arch         Arch          // to claim, in tests; zero: this machine's

	Log       *slog.Logger      // nil: nowhere
	OnFailure func(Proc, error) // called once for each process that fails, without the engine held; nil: nothing
	// OnLeave is called, with the engine held, for each process that has left in order
	// without any message of ours waiting for it; nil: nothing.
	OnLeave func(*Op, ErrProcFailed)
}

// Engine is one process's end of all its links. Its methods may be called from
// any goroutine.
type Engine struct {
	cfg  Config
	self Proc
	log  *slog.Logger
	me   identity
	op   Op

	clock func() time.Duration // since some moment, for gauges

	gate gate // guards what follows, but for what is atomic or a channel
	tables
	pending
	role
	lifetime
	porch
	system
}

// tables are what the engine knows.
type tables struct {
	requests slab[request]
	messages slab[message]
	buffers  buffers
	contexts []*domain
	peers    []*peer
	strange  int // contexts that only peers have named
	handlers [256]Handler
	page     []byte // what others of the host see of this process; nil: nothing
	boards   []*Board
	reserved int // places for boards in the page
}

// pending is what is under way.
type pending struct {
	ending     requests   // their callbacks have to run
	pulls      requests   // receives that read their sender's memory
	shown      int        // sends whose data others may read
	deferred   []deferred // calls put off; the first have been made
	called     int        // how many
	breaking   []*conn    // links that were found broken
	output     []*conn    // links that have output
	leavers    []*peer    // they have said goodbye
	fast       []*conn    // links that are polled one by one
	ready      poller     // of links that are polled together; nil: none
	watched    []*Board   // those on which something is under way
	freeFrames *frame
	hdr        [longHeader]byte
	postHdr    [24]byte
	working    bool // callbacks are being run
}

// poller finds which of many links have input or room for output.
type poller interface {
	poll(e *Engine) bool
}

// role is about who drives.
type role struct {
	driver       *waiter
	parked       *waiter // a list
	waiters      *waiter // a list of unused ones
	probing      []*waiter
	helper       waiter
	helperCall   chan struct{} // size 1: a call is a call
	helperRests  bool          // it will not look by itself
	helperWanted bool          // it is to drive as soon as it looks, if nobody does
	helperLater  bool          // it was called for its next tick, which it would have rested over
	turns        uint64        // counts drivers
	early        uint          // counts waits for operations of several messages that had ended
	asleep       *atomic.Uint32
	bell         bell
	spins        int           // polls in vain before yielding
	yields       int           // and before sleeping
	stays        time.Duration // while others may read its memory it goes on yielding for so long; 0: processes share a processor
	hope         hope
	ways         ways
	answers      hope // in microseconds: that who has announced a message is there to send it; see fetch
}

// lifetime is about the beginning and the end.
type lifetime struct {
	ctx      context.Context // ends when the engine does
	halt     context.CancelFunc
	started  bool
	closed   bool // no new operations
	stopped  bool // nothing moves any more
	tasks    sync.WaitGroup
	failures []failure     // that OnFailure has still to be told
	failed   chan struct{} // size 1: there are some
	closers  []func()      // of what is listened and slept with
	ends     []func()      // of what goroutines of ours use to their end
	changed  chan struct{} // closed and replaced when the table of peers or a peer's state has changed
}

// bell wakes the driver from its sleep.
type bell interface {
	ring()            // end the driver's sleep, or its next
	kick()            // the same for the helper
	wait(helper bool) // sleep until rung, or until a link has something
	yield()           // let other threads run
}

// New makes an engine. Nothing runs before Start.
func New(cfg Config) (*Engine, error) {
	if cfg.Size == 0 {
		cfg.Size = 1
	}
	if cfg.Self < 0 || int(cfg.Self) >= cfg.Size {
		return nil, ErrRankRange{cfg.Self}
	}
	if cfg.Links < 0 || cfg.Links > mostLinks || cfg.EagerLimit < 0 || cfg.EagerLimit > maxPayload || cfg.Credit < 0 {
		return nil, errors.New("engine: configuration out of range")
	}
	if cfg.Links == 0 {
		cfg.Links = 1
	}
	if cfg.MostRequests == 0 {
		cfg.MostRequests = 1 << 20
	}
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Arch == 0 {
		cfg.Arch = NativeArch()
	}
	if cfg.Resolve == nil && cfg.Hub != nil {
		cfg.Resolve = cfg.Hub.resolve
	}
	e := &Engine{cfg: cfg, self: cfg.Self, log: cfg.Log}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.op.e = e
	began := time.Now()
	e.clock = func() time.Duration { return time.Since(began) }
	e.requests.limit = cfg.MostRequests
	e.messages.limit = 1 << 30 // credit bounds them
	e.helperCall = make(chan struct{}, 1)
	e.failed = make(chan struct{}, 1)
	e.changed = make(chan struct{})
	e.ctx, e.halt = context.WithCancel(context.Background())
	for i := range cfg.Size {
		e.peers = append(e.peers, newPeer(Proc(i)))
	}
	me := e.peers[e.self]
	me.state, me.eager, me.own.granted = up, 64<<10, credit{bytes: 1 << 20, messages: 1 << 12}
	if err := e.equip(); err != nil {
		e.halt()
		return nil, err
	}
	return e, nil
}

func newPeer(p Proc) *peer { return &peer{proc: p} }

// equip makes what the engine listens and sleeps with.
func (e *Engine) equip() error {
	var err error
	if e.me, err = newIdentity(e.cfg.Job); err != nil {
		return err
	}
	if e.cfg.Hub != nil {
		e.asleep = new(atomic.Uint32)
		e.bell = newChanBell()
		e.spins, e.yields = 0, 4
		e.page = make([]byte, pageBytes())
		e.me.card.hub = e.cfg.Hub.id
	} else if err := e.equipSystem(); err != nil {
		return err
	}
	if err := e.equipListeners(); err != nil {
		e.unequip()
		return err
	}
	e.me.card.arch = e.cfg.Arch
	c := e.me.card
	e.peers[e.self].card = &c
	return nil
}

// unequip closes what equip has made, latest first.
func (e *Engine) unequip() {
	for i := len(e.closers) - 1; i >= 0; i-- {
		e.closers[i]()
	}
	e.closers = nil
	e.tasks.Wait()
	for _, f := range e.ends {
		f()
	}
	e.ends = nil
}

// Card returns what other processes need to connect to this one, as text of at
// most 900 bytes.
func (e *Engine) Card() []byte { return e.me.card.encode() }

// Start lets the engine be found and run. Close ends what it starts; ctx bounds
// the start only.
func (e *Engine) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.gate.lock()
	defer e.leave()
	if e.closed || e.started {
		return ErrClosed
	}
	e.started = true
	if e.cfg.Hub != nil {
		e.cfg.Hub.register(e)
	}
	e.tasks.Add(2)
	go e.help()
	go e.tellFailures()
	e.serve()
	for _, p := range e.peers {
		if p.blocked.first != nil || p.posts.first != nil {
			e.reach(p)
		}
	}
	return nil
}

// AddProcs adds processes to the table, which are then known by the numbers
// returned. A card that is there already keeps its number.
func (e *Engine) AddProcs(cards ...[]byte) ([]Proc, error) {
	parsed := make([]*card, len(cards))
	for i, c := range cards {
		var err error
		if parsed[i], err = parseCard(c); err != nil {
			return nil, err
		}
	}
	e.gate.lock()
	defer e.leave()
	procs := make([]Proc, len(cards))
	for i, c := range parsed {
		procs[i] = e.addProc(c)
	}
	e.change()
	return procs, nil
}

func (e *Engine) addProc(c *card) Proc {
	if c.uid == e.me.card.uid {
		return e.self
	}
	for _, p := range e.peers {
		if p.card != nil && p.card.uid == c.uid {
			return p.proc
		}
	}
	p := newPeer(Proc(len(e.peers)))
	p.card = c
	e.peers = append(e.peers, p)
	return p.proc
}

// change tells those who wait for a process that something has changed.
func (e *Engine) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}
