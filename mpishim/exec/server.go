package exec

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// refused is how a server that turns a connection away begins its only line;
// RFC 4253 §4.2 lets lines precede the SSH version, and clients read on.
const refused = "meshmpi: refused: "

// Config is what Serve needs. HostKey, Lookup, Exe and StateDir have no default.
type Config struct {
	HostKey  ed25519.PrivateKey                 // the node's own Ed25519 key
	Lookup   func(netip.Addr) (peer.Node, bool) // who owns a virtual address: current, not revoked
	Exe      string                             // our own binary; its folder leads the PATH of sessions
	Args     []string                           // that make Exe call Session; default exec-session
	Policy   func() Policy                      // asked for every connection; nil is the zero Policy
	StateDir string                             // sessions are recorded in its folder "sessions"
	Node     string                             // our name
	Site     string                             // our site
	Log      *slog.Logger                       // nil discards
	Max      int                                // sessions at a time; 0 is 512
	MaxFrom  int                                // of those, from one node; 0 is a quarter of Max
	Nice     int                                // nice value of what sessions run
	Silence  time.Duration                      // how long a peer may be silent; 0 is a minute
}

// Serve accepts connections on ln until ctx ends, gives each to a process of
// its own and returns after its goroutines have ended. The sessions go on: they
// end with their commands, their connections, or EndSessions. ln is closed.
//
// A listener of kernel TCP sockets passes its connections on for good. Those of
// any other kind (a user-space stack) are copied to and from the session by
// this process, and so do not outlive it.
func Serve(ctx context.Context, ln net.Listener, cfg Config) error {
	s, err := newServer(cfg)
	if err != nil {
		ln.Close()
		return err
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer s.running.Wait()
	defer s.closeReports()
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			s.accept(conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			s.cfg.Log.Warn("exec: cannot accept", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		default:
			return fmt.Errorf("exec: accept: %w", err)
		}
	}
}

type server struct {
	cfg     Config
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	total   int
	from    map[string]int        // sessions by node
	reports map[*os.File]struct{} // open report pipes
}

func newServer(cfg Config) (*server, error) {
	if len(cfg.HostKey) != ed25519.PrivateKeySize || cfg.Lookup == nil || cfg.Exe == "" || cfg.StateDir == "" {
		return nil, errors.New("exec: serve: HostKey, Lookup, Exe and StateDir are needed")
	}
	if cfg.Args == nil {
		cfg.Args = []string{"exec-session"}
	}
	if cfg.Policy == nil {
		cfg.Policy = func() Policy { return Policy{} }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Max <= 0 {
		cfg.Max = 512
	}
	if cfg.MaxFrom <= 0 {
		cfg.MaxFrom = max(1, cfg.Max/4)
	}
	if cfg.Silence <= 0 {
		cfg.Silence = time.Minute
	}
	if err := os.MkdirAll(filepath.Join(cfg.StateDir, sessionsDir), 0o700); err != nil {
		return nil, fmt.Errorf("exec: serve: %w", err)
	}
	sweepRecords(cfg.StateDir)
	return &server{cfg: cfg, from: map[string]int{}, reports: map[*os.File]struct{}{}}, nil
}

// accept owns conn and closes it, except where it must be copied.
func (s *server) accept(conn net.Conn) {
	copied := false
	defer func() {
		if !copied {
			conn.Close()
		}
	}()
	src, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		s.cfg.Log.Warn("exec: connection without an address", "remote", conn.RemoteAddr().String())
		return
	}
	src = netip.AddrPortFrom(src.Addr().Unmap(), src.Port())
	node, ok := s.cfg.Lookup(src.Addr())
	if !ok {
		s.refuse(conn, fmt.Sprintf("%s belongs to no current node of this network", src.Addr()))
		return
	}
	if why := s.enter(node.Name); why != "" {
		s.refuse(conn, why)
		return
	}
	proxy, err := s.start(conn, src, node)
	if copied = proxy != nil; copied {
		s.running.Go(func() { copyBoth(conn, proxy) }) // ends with the session, or in follow
	}
	if err != nil {
		s.leave(node.Name)
		s.refuse(conn, "this node cannot start a session; see its log")
		s.cfg.Log.Error("exec: start session", "node", node.Name, "error", err)
	}
}

func (s *server) refuse(conn net.Conn, why string) {
	s.cfg.Log.Warn("exec: refused", "remote", conn.RemoteAddr().String(), "why", why)
	conn.SetWriteDeadline(time.Now().Add(time.Second)) // a fresh connection has room: it does not block
	io.WriteString(conn, refused+why+"\r\n")
}

func (s *server) enter(node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.total >= s.cfg.Max:
		return fmt.Sprintf("%d sessions are running, no more are allowed", s.total)
	case s.from[node] >= s.cfg.MaxFrom:
		return fmt.Sprintf("%d sessions of node %s are running, no more are allowed", s.from[node], node)
	}
	s.total++
	s.from[node]++
	return ""
}

func (s *server) leave(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.from[node]--; s.from[node] == 0 {
		delete(s.from, node)
	}
}

// start runs the session's process: connection on 3, configuration on 4, report
// on 5. It returns the proxy end where the connection must be copied. When it succeeds, a goroutine counts the session until its report ends.
func (s *server) start(conn net.Conn, src netip.AddrPort, node peer.Node) (proxy net.Conn, err error) {
	cfgFile, err := s.sessionFile(conn, src, node)
	if err != nil {
		return nil, err
	}
	defer cfgFile.Close()
	file, proxy, err := connFile(conn)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	report, reportW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, closeIf(proxy))
	}
	defer reportW.Close()
	cmd := &osexec.Cmd{
		Path:        s.cfg.Exe,
		Args:        append([]string{s.cfg.Exe}, s.cfg.Args...),
		Dir:         "/",
		ExtraFiles:  []*os.File{file, cfgFile, reportW},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := startNice(cmd, s.cfg.Nice); err != nil {
		return nil, errors.Join(err, report.Close(), closeIf(proxy))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports[report] = struct{}{}
	s.running.Go(func() { s.follow(cmd, report, proxy, node.Name) })
	return proxy, nil
}

// startNice starts a command with a nice value that may not be this process's.
func startNice(cmd *osexec.Cmd, nice int) error {
	runtime.LockOSThread() // a process inherits from the thread that begins it
	defer runtime.UnlockOSThread()
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if own = 20 - own; err == nil && own != nice && unix.Setpriority(unix.PRIO_PROCESS, 0, nice) == nil {
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, own) }()
	}
	return cmd.Start()
}

func (s *server) sessionFile(conn net.Conn, src netip.AddrPort, node peer.Node) (*os.File, error) {
	dst, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	raw, err := json.Marshal(sessionConfig{
		Seed: s.cfg.HostKey.Seed(), SignKey: node.SignKey,
		Caller: Caller{Node: node.Name, Site: node.Site}, Source: src, Dest: dst,
		Policy: s.cfg.Policy(), StateDir: s.cfg.StateDir, Node: s.cfg.Node, Site: s.cfg.Site,
		BinDir: filepath.Dir(s.cfg.Exe), Silence: s.cfg.Silence, Report: true,
	})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("exec-session", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "exec-session")
	if _, err := f.WriteAt(raw, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// follow logs what a session reports and reaps its process.
func (s *server) follow(cmd *osexec.Cmd, report *os.File, proxy net.Conn, node string) {
	for lines := bufio.NewScanner(io.LimitReader(report, 64<<10)); lines.Scan(); {
		s.cfg.Log.Info("exec: session", "node", node, "pid", cmd.Process.Pid, "report", lines.Text())
	}
	s.mu.Lock()
	closed := s.closed
	delete(s.reports, report)
	s.mu.Unlock()
	report.Close()
	closeIf(proxy)
	s.leave(node)
	if closed {
		cmd.Process.Release() // it lives on; init reaps it
		return
	}
	cmd.Wait() // the pipe ends with the process, so this does not wait
}

// closeReports lets every follow end while its session lives on.
func (s *server) closeReports() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for report := range s.reports {
		report.Close()
	}
}
