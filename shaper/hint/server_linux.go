package hint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what programs may have open.
const (
	maxPages   = 4096            // in all
	maxOfUser  = 1024            // of one user other than root
	helloLimit = 5 * time.Second // for a program to hand its page over
)

// Config says where a server listens.
type Config struct {
	Path string // of the Unix socket
	Log  *slog.Logger
	// Changed is called when a page has come or gone; nil: nobody. It must not wait.
	Changed func()
}

// Server is the daemon's side: it takes the pages of the programs on this node.
type Server struct {
	cfg Config
	ln  *net.UnixListener

	mu      sync.Mutex // guards the rest
	held    []*held
	users   map[uint32]int // connections by user
	total   int            // connections
	maxRate int64
	refused uint64 // programs beyond a bound, or without a good page
}

// held is the page of a running program.
type held struct {
	reader
	uid uint32
	pid int32
}

// Listen opens the socket at cfg.Path, in place of what a dead daemon left there,
// for every user of the host. Serve or Close must follow.
func Listen(cfg Config) (*Server, error) {
	if !pathFits(cfg.Path) {
		return nil, fmt.Errorf("hint: %s has %d bytes, sockets' names at most %d; choose a shorter --state", cfg.Path, len(cfg.Path), len(unix.RawSockaddrUnix{}.Path)-1)
	}
	if err := os.Remove(cfg.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("hint: programs' socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("hint: programs' socket: %w", err)
	}
	if err := os.Chmod(cfg.Path, 0o666); err != nil {
		ln.Close()
		return nil, fmt.Errorf("hint: programs' socket: %w", err)
	}
	return &Server{cfg: cfg, ln: ln, users: map[uint32]int{}}, nil
}

// Close takes the socket away where Serve does not.
func (s *Server) Close() error {
	err := s.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Serve takes pages until ctx ends, and returns when it has let go of all of them.
func (s *Server) Serve(ctx context.Context) error {
	var all sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	defer all.Wait()
	for {
		nc, err := s.ln.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return nil
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM):
			s.cfg.Log.Warn("no room for programs' hints", "err", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return fmt.Errorf("hint: programs' socket: %w", err)
		}
		cred := peerOf(nc)
		if cred == nil || !s.admit(cred.Uid) {
			nc.Close()
			continue
		}
		all.Go(func() { // ends with the connection, which ctx closes
			defer s.dismiss(cred.Uid)
			defer nc.Close()
			stop := context.AfterFunc(ctx, func() { nc.Close() })
			defer stop()
			if err := s.hold(nc, cred); err != nil && ctx.Err() == nil {
				s.mu.Lock()
				s.refused++
				s.mu.Unlock()
				s.cfg.Log.Debug("a program's hints are not taken", "pid", cred.Pid, "uid", cred.Uid, "err", err)
			}
		})
	}
}

// admit counts a connection of a user, unless that one has its share.
func (s *Server) admit(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxPages || uid != 0 && s.users[uid] >= maxOfUser {
		s.refused++
		return false
	}
	s.total++
	s.users[uid]++
	return true
}

func (s *Server) dismiss(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.users[uid]--; s.users[uid] == 0 {
		delete(s.users, uid)
	}
}

// peerOf asks the kernel who has connected.
func peerOf(nc *net.UnixConn) (cred *unix.Ucred) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil
	}
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return nil
	}
	return cred
}

// hold takes a program's page and keeps it until the connection ends.
func (s *Server) hold(nc *net.UnixConn, cred *unix.Ucred) error {
	_ = nc.SetReadDeadline(time.Now().Add(helloLimit)) // fails only when closed
	mem, err := receivePage(nc)
	if err != nil {
		return err
	}
	_ = nc.SetReadDeadline(time.Time{})
	h := &held{reader: reader{page: mem}, uid: cred.Uid, pid: cred.Pid}
	if err := h.check(); err != nil {
		unmapMemory(mem)
		return err
	}
	s.mu.Lock()
	h.word(offMaxRate).Store(uint64(s.maxRate))
	s.held = append(s.held, h)
	s.mu.Unlock()
	s.changed()
	var b [1]byte
	_, _ = nc.Read(b[:]) // until the program ends, or says what it should not
	s.mu.Lock()
	s.held = slices.DeleteFunc(s.held, func(o *held) bool { return o == h })
	s.mu.Unlock()
	unmapMemory(mem) // nobody reads it any more
	s.changed()
	return nil
}

func (s *Server) changed() {
	if s.cfg.Changed != nil {
		s.cfg.Changed()
	}
}

// receivePage reads a program's message and maps the page that comes with it.
func receivePage(nc *net.UnixConn) ([]byte, error) {
	var b [helloSize + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, on, flags, _, err := nc.ReadMsgUnix(b[:], oob)
	files := parseFiles(oob[:on])
	defer func() {
		for _, fd := range files {
			closeFile(fd)
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := decodeHello(b[:n]); err != nil {
		return nil, err
	}
	if len(files) != 1 || flags&unix.MSG_CTRUNC != 0 {
		return nil, fmt.Errorf("hint: an offer with %d descriptors", len(files))
	}
	return mapMemory(files[0])
}

// Strictest returns what the programs together ask for: the lowest MATB, the most
// hosts, the most parts. It costs one load for each page that has not changed, so it
// may be called every 200 µs.
func (s *Server) Strictest() (r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each(func(h *held) { r = r.join(h.request()) })
	return r
}

// SetMaxRate tells every program, and those that come, the bandwidth of the site's
// link, in bits per second; 0: not known.
func (s *Server) SetMaxRate(bits int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxRate = max(bits, 0)
	s.each(func(h *held) { h.word(offMaxRate).Store(uint64(s.maxRate)) })
}

// each calls f for every page. A program can punch its page out of the memory; the
// kernel then fills it anew with zeros, or, where a host has none left, raises a
// fault, which must not end the daemon. The caller holds mu.
func (s *Server) each(f func(*held)) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, h := range s.held {
		try(h, f)
	}
}

// try survives a fault of f's: the page counts as empty this time.
func try(h *held, f func(*held)) {
	defer func() {
		if e := recover(); e != nil {
			if _, fault := e.(interface{ Addr() uintptr }); !fault {
				panic(e)
			}
		}
	}()
	f(h)
}

// Info is what one program asks for, for display.
type Info struct {
	Pid     int32
	Uid     uint32
	Request Request
	MaxRate int64         // as it reads it now
	Entered map[Op]uint64 // operations begun
	Left    map[Op]uint64 // and ended
	Dropped uint64        // operations that found no room
}

// Pages lists the programs that have a page here.
func (s *Server) Pages() (list []Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each(func(h *held) {
		i := Info{Pid: h.pid, Uid: h.uid, Request: h.request(), Entered: map[Op]uint64{}, Left: map[Op]uint64{},
			MaxRate: boundRate(h.word(offMaxRate).Load()), Dropped: h.word(offDropped).Load()}
		for op := Alltoall; op < maxOps; op++ {
			if n := h.entered(op).Load(); n > 0 {
				i.Entered[op], i.Left[op] = n, h.left(op).Load()
			}
		}
		list = append(list, i)
	})
	return list
}

// Refused counts the programs whose pages were not taken.
func (s *Server) Refused() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}
