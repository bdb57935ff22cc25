package pmi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Config says what job a Server serves. Only Size has no default.
type Config struct {
	Size     int    // ranks
	Apps     []int  // program of each rank; nil: all of program 0
	JobID    string // name of the key-value space; "": made up
	Key      string // what a rank that connects to Serve must show; "": nothing
	Universe int    // ranks there is room for; 0: not known
	Spawned  bool   // another job's Spawn started this one

	Keys          map[string]string // there from the start, such as PMI_process_mapping
	FaultTolerant bool              // the living go on without the dead
	MaxBytes      int64             // of keys and values; 0: 64 MiB
	Names         *Names            // nil: of this job alone

	// Notice is told what happens, one call at a time, from a goroutine of the
	// server; it must not call the server. nil: nobody is.
	Notice func(Notice)
	// Spawn starts another job for a rank of this one, with keys that NewServer
	// takes as Config.Keys. nil: refused.
	// It is withdrawn when ctx ends: then nobody will join the job that it starts.
	Spawn func(ctx context.Context, req SpawnRequest) (codes []int, err error)
	// Joined is told that the job has met the one that spawned it, so that its start is
	// complete, or why that has failed and it is of no use. nil: nobody is.
	Joined func(err error)
	Log    *slog.Logger // nil: none
}

// defaultBytes bounds a job's keys and values unless Config says otherwise:
// cards of 1 KiB for 64 Ki ranks.
const defaultBytes = 64 << 20

// Server serves the ranks of one job. Make one with NewServer; it runs nothing
// by itself.
type Server struct {
	cfg   Config
	names *Names
	log   *slog.Logger

	telling sync.Mutex // held while Config.Notice runs, taken before mu

	mu       sync.Mutex // guards what follows
	kvs      map[string]string
	bytes    int64
	ranks    []rank
	inside   int                   // ranks in the barrier
	living   int                   // ranks that may still come into it
	done     int                   // ranks that have left, one way or the other
	missing  int                   // ranks that have never come
	sessions map[*session]struct{} // all connections
	came     uint64                // connections so far
	listen   map[*session]struct{} // those that asked for notices
	idle     chan struct{}         // closed when done is Size, or the job is aborted
	met      chan struct{}         // closed when missing is 0
	closed   bool
	ending   bool // see End
}

// phase is where a rank is in its life.
type phase uint8

const (
	absent    phase = iota // not yet connected
	here                   // connected
	finalized              // left on purpose
	dead
)

// rank is what the server knows of one.
type rank struct {
	phase phase
	came  bool     // at some time
	in    bool     // waits in the barrier
	parts bool     // is about to be finalized
	s     *session // while here
	code  int      // how it ended
}

// NewServer checks the configuration.
func NewServer(cfg Config) (*Server, error) {
	if cfg.Size < 1 || cfg.Size > MaxSize {
		return nil, fmt.Errorf("pmi: a job of %d ranks: between 1 and %d can run", cfg.Size, MaxSize)
	}
	if cfg.Apps != nil && len(cfg.Apps) != cfg.Size {
		return nil, fmt.Errorf("pmi: %d ranks with programs, of %d", len(cfg.Apps), cfg.Size)
	}
	if cfg.JobID == "" {
		var b [8]byte
		rand.Read(b[:]) // never fails
		cfg.JobID = "kvs_" + hex.EncodeToString(b[:])
	}
	if len(cfg.JobID) >= maxName || escape(cfg.JobID) != cfg.JobID {
		return nil, fmt.Errorf("pmi: %.40q is no name of a job", cfg.JobID)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultBytes
	}
	if cfg.Names == nil {
		cfg.Names = NewNames()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, names: cfg.Names, log: cfg.Log, kvs: map[string]string{}, ranks: make([]rank, cfg.Size), living: cfg.Size, missing: cfg.Size,
		sessions: map[*session]struct{}{}, listen: map[*session]struct{}{}, idle: make(chan struct{}), met: make(chan struct{}),
	}
	keys, err := packKeys(cfg.Keys, maxChunk)
	if err != nil {
		return nil, err
	}
	for _, p := range keys {
		if why := s.put(p.key, p.value); why != "" {
			return nil, fmt.Errorf("pmi: key %s: %s", p.key, why)
		}
	}
	return s, nil
}

// JobID returns the name of the job's key-value space.
func (s *Server) JobID() string { return s.cfg.JobID }

// Idle is closed once every rank has left, or one has aborted the job.
func (s *Server) Idle() <-chan struct{} { return s.idle }

// Met is closed once every rank has connected.
func (s *Server) Met() <-chan struct{} { return s.met }

// Connected counts the connections there are.
func (s *Server) Connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// helloTime is how long a connection may take to say which rank it is.
const helloTime = time.Minute

// acceptAgain is how long Serve waits when it can take no connection.
const acceptAgain = 50 * time.Millisecond

// Serve accepts ranks that find the server by PMI_PORT and say who they are,
// until ctx ends; then it closes ln and every connection and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("pmi: accept: %w", err)
			}
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() { // a listener with deadlines
				continue
			}
			s.log.Warn("accept", "err", err)
			select { // of files, mostly: some will be closed
			case <-time.After(acceptAgain):
			case <-ctx.Done():
			}
			continue
		}
		all.Go(func() {
			if err := s.ServeConn(ctx, conn, -1); err != nil {
				s.log.Debug("a rank's connection", "err", err)
			}
		})
	}
}

// ServeConn serves one connection until it ends or ctx does, and closes it.
// rank is whose it is, as for PMI_FD; -1 has the other end say so, and show
// Config.Key.
func (s *Server) ServeConn(ctx context.Context, conn net.Conn, rank int) error {
	defer conn.Close()
	if rank < -1 || rank >= s.cfg.Size {
		return fmt.Errorf("pmi: there is no rank %d of %d", rank, s.cfg.Size)
	}
	ss := &session{srv: s, conn: conn, rank: rank, greets: rank < 0, room: make(chan struct{}, 1), more: make(chan struct{}, 1)}
	s.mu.Lock()
	crowded := len(s.sessions) >= 2*s.cfg.Size+64 && !s.makeRoom()
	if !crowded {
		s.came++
		ss.came, ss.strange = s.came, ss.greets
		s.sessions[ss] = struct{}{}
	}
	s.mu.Unlock()
	if crowded {
		return errors.New("pmi: more connections than ranks could have")
	}
	return ss.serve(ctx)
}

// makeRoom ends the connection that has not said for longest whose it is, and reports
// whether there was one. The caller holds mu.
func (s *Server) makeRoom() bool {
	var oldest *session
	for ss := range s.sessions {
		if ss.strange && (oldest == nil || ss.came < oldest.came) {
			oldest = ss
		}
	}
	if oldest == nil {
		return false
	}
	oldest.strange = false
	oldest.conn.Close() // it leaves sessions by itself
	return true
}

// Died tells the server what the launcher sees: the process of a rank has ended
// without finalizing, with an exit code, or 128+n for signal n.
func (s *Server) Died(rank, code int) { s.leave(rank, nil, dead, code) }

// Lost is Died for a rank whose node is lost: nothing more will come by its connection,
// of which the kernel would take minutes to know.
func (s *Server) Lost(rank, code int) {
	s.mu.Lock()
	ss := s.ranks[rank].s
	s.mu.Unlock()
	s.Died(rank, code)
	if ss != nil {
		ss.conn.Close()
	}
}

// End tells the server that the launcher ends the job, by a signal to all ranks. Who is
// the last to get it is not told of those who were the first, of whom it would complain:
// it waits for its own. In a fault-tolerant job, which may end in its own way, it is.
func (s *Server) End() {
	s.mu.Lock()
	s.ending = !s.cfg.FaultTolerant
	s.mu.Unlock()
}

// Left reports whether a rank has connected, and whether it left on purpose.
func (s *Server) Left(rank int) (came, finished bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.ranks[rank]
	return r.phase != absent, r.phase == finalized || r.parts
}

// Expect tells the server that the launcher starts a dead rank anew, so that it
// counts among the living again.
func (s *Server) Expect(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := &s.ranks[rank]; r.phase == dead || r.phase == finalized {
		r.phase, r.parts = absent, false
		s.living++
		s.done--
	}
}

// enter makes ss the connection of its rank.
func (s *Server) enter(ss *session) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	r := &s.ranks[ss.rank]
	back := r.phase == dead
	switch {
	case r.phase == here:
		s.mu.Unlock()
		return fmt.Errorf("rank_%d_is_connected_already", ss.rank)
	case r.phase == finalized, back && !s.cfg.FaultTolerant:
		s.mu.Unlock()
		return fmt.Errorf("rank_%d_has_left", ss.rank)
	case back:
		s.living++
		s.done--
	}
	if !r.came {
		r.came = true
		if s.missing--; s.missing == 0 {
			close(s.met)
		}
	}
	r.phase, r.s, r.in, r.parts = here, ss, false, false
	ss.strange = false
	s.mu.Unlock()
	if back {
		s.tell(Notice{Kind: Back, Rank: ss.rank})
	}
	return nil
}

// part notes that a rank leaves on purpose, before it is told that it may: its process
// can have ended, and the launcher have heard so, before leave has run.
func (s *Server) part(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := &s.ranks[ss.rank]; r.s == ss {
		r.parts = true
	}
}

// leave ends a rank's life, once. ss is the connection that says so; nil for the
// launcher.
func (s *Server) leave(rank int, ss *session, to phase, code int) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	r := &s.ranks[rank]
	if r.phase == dead || r.phase == finalized || ss != nil && r.s != ss {
		s.mu.Unlock()
		return
	}
	if r.in {
		r.in = false
		s.inside--
	}
	r.phase, r.s, r.code = to, nil, code
	s.living--
	if s.done++; s.done == s.cfg.Size {
		s.finish()
	}
	if to != dead || !s.ending {
		s.checkBarrier(rank, to)
	}
	s.mu.Unlock()
	s.names.drop(s, rank)
	if to == dead {
		s.tell(Notice{Kind: Died, Rank: rank, Code: code})
	}
}

// finish closes idle. The caller holds mu.
func (s *Server) finish() {
	if !s.closed {
		s.closed = true
		close(s.idle)
	}
}

// tell passes a notice on. The caller holds telling but not mu.
func (s *Server) tell(n Notice) {
	b := n.message().append(nil)
	s.mu.Lock()
	if n.Kind != Died || !s.ending {
		for ss := range s.listen {
			ss.push(b)
		}
	}
	s.mu.Unlock()
	if s.cfg.Notice != nil {
		s.cfg.Notice(n)
	}
}

// subscribe adds ss to those who are told, and tells it who is dead.
func (s *Server) subscribe(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen[ss] = struct{}{}
	ss.push(newMessage("mesh_subscribed", "rc", "0").append(nil))
	for i, r := range s.ranks {
		if r.phase == dead && !s.ending {
			ss.push(Notice{Kind: Died, Rank: i, Code: r.code}.message().append(nil))
		}
	}
}

// abort is a rank's word that the job is to end.
func (s *Server) abort(rank, code int) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	s.finish()
	s.mu.Unlock()
	s.tell(Notice{Kind: Aborted, Rank: rank, Code: code})
}
