//go:build linux

package hint

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"golang.org/x/sys/unix"
)

// serve runs a server at path until the test or stop ends it.
func serve(t *testing.T, path string) (s *Server, stop func()) {
	t.Helper()
	s, err := Listen(Config{Path: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func dial(t *testing.T, path string) *Page {
	t.Helper()
	p, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hints.sock")
	s, _ := serve(t, path)
	s.SetMaxRate(1e8)
	a, b := dial(t, path), dial(t, path)
	eventually.Holds(t, "two pages", func() bool { return len(s.Pages()) == 2 })
	if a.MaxRate() != 1e8 || !a.Connected() {
		t.Errorf("max rate %d, connected %v", a.MaxRate(), a.Connected())
	}
	s.SetMaxRate(2e8)
	if got := b.MaxRate(); got != 2e8 {
		t.Errorf("max rate %d after a change", got)
	}
	want := func(what string, r Request) {
		t.Helper()
		if got := s.Strictest(); got != r {
			t.Errorf("%s: %+v, want %+v", what, got, r)
		}
	}
	want("nothing", Request{})
	a.Enter(Alltoall, 4)
	b.Enter(Alltoallv, 2)
	want("two operations", Request{Op: Alltoall, Hosts: 4})
	b.SetMATB(5e6)
	a.SetMATB(6e6)
	a.SetParts(3 * Whole)
	want("rates", Request{Op: Alltoall, Hosts: 4, MATB: 5e6, Parts: 3 * Whole})
	b.SetMATB(0)
	a.Leave(Alltoall, 4)
	want("one left", Request{Op: Alltoallv, Hosts: 2, MATB: 6e6, Parts: 3 * Whole})
	for _, i := range s.Pages() {
		if int(i.Pid) != os.Getpid() || int(i.Uid) != os.Getuid() || i.Entered[Alltoall]+i.Entered[Alltoallv] != 1 || i.MaxRate != 2e8 {
			t.Errorf("a page is %+v", i)
		}
	}
	a.Close()
	eventually.Holds(t, "one page", func() bool { return len(s.Pages()) == 1 })
	want("the other's page", Request{Op: Alltoallv, Hosts: 2})
}

// TestReconnect: the page goes to the next daemon as it is, and looking for one is
// done once a second at most.
func TestReconnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hints.sock")
	p := dial(t, path)
	if p.Connected() || p.MaxRate() != 0 {
		t.Error("connected to nobody")
	}
	p.Enter(Alltoall, 3) // the same without a daemon
	now := time.Now()
	for range 2 {
		s, stop := serve(t, path)
		p.keep(now)
		if p.Connected() {
			t.Error("it looks again at once")
		}
		now = now.Add(2 * again)
		p.keep(now)
		eventually.Holds(t, "the page as it is", func() bool { return s.Strictest() == Request{Op: Alltoall, Hosts: 3} })
		stop()
		eventually.Holds(t, "it notices that the daemon is dead", func() bool { // whose socket may outlive Serve by a moment
			now = now.Add(2 * again)
			p.keep(now)
			return !p.Connected()
		})
	}
	if _, err := Dial(strings.Repeat("x", 200)); err == nil {
		t.Error("no error for a name that no socket can have")
	}
}

// TestStrangers: what is no page is refused, and nobody else notices.
func TestStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hints.sock")
	s, _ := serve(t, path)
	good := dial(t, path)
	eventually.Holds(t, "a page", func() bool { return len(s.Pages()) == 1 })
	memfd := func(flags, seals int, size int64, format bool) int {
		fd, err := unix.MemfdCreate("x", flags)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if format {
			_, _ = unix.Pwrite(fd, appendHello(nil), 0)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil && flags&unix.MFD_ALLOW_SEALING != 0 {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	const allow = unix.MFD_ALLOW_SEALING
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	right := memfd(allow, sealed, Size, true)
	for i, bad := range []struct {
		msg   []byte
		files []int
	}{
		{appendHello(nil), nil},
		{appendHello(nil), []int{right, right}},
		{appendHello(nil), []int{right, right, right, right, right, right}},
		{appendHello(nil), []int{memfd(0, 0, Size, true)}},
		{appendHello(nil), []int{memfd(allow, unix.F_SEAL_GROW, Size, true)}},
		{appendHello(nil), []int{memfd(allow, sealed, 0, false)}},
		{appendHello(nil), []int{memfd(allow, sealed, 2*Size, true)}},
		{appendHello(nil), []int{memfd(allow, sealed, Size, false)}},                  // no page in it
		{appendHello(nil), []int{memfd(allow, sealed|unix.F_SEAL_WRITE, Size, true)}}, // not ours to write
		{appendHello(nil), []int{int(file.Fd())}},
		{[]byte("GET / HTTP/1.1\r\n\r\n"), []int{right}},
		{[]byte{1}, []int{right}},
		{append(appendHello(nil), 0), []int{right}},
	} {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		var rights []byte
		if bad.files != nil {
			rights = unix.UnixRights(bad.files...)
		}
		if _, _, err := c.WriteMsgUnix(bad.msg, rights, nil); err != nil {
			t.Fatal(err)
		}
		eventually.Holds(t, "refused", func() bool { return s.Refused() == uint64(i)+1 })
		c.Close()
	}
	if len(s.Pages()) != 1 || !good.Enter(Alltoall, 2) || s.Strictest().Hosts != 2 {
		t.Errorf("the good page suffers: %+v", s.Pages())
	}
	var st unix.Stat_t
	if err := unix.Fstat(right, &st); err != nil {
		t.Error(err)
	}
}

// TestFault: a page that cannot be read counts as empty.
func TestFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hints.sock")
	s, _ := serve(t, path)
	p := dial(t, path)
	p.Enter(Alltoall, 2)
	eventually.Holds(t, "a page", func() bool { return len(s.Pages()) == 1 })
	fd, err := unix.MemfdCreate("x", 0) // of no bytes: every access is a fault
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapMemory(mem)
	s.mu.Lock()
	s.held = append([]*held{{reader: reader{page: mem}}}, s.held...)
	s.mu.Unlock()
	if got := s.Strictest(); got.Hosts != 2 {
		t.Errorf("beside a page that is not there: %+v", got)
	}
	s.SetMaxRate(7)
	if p.MaxRate() != 7 {
		t.Error("the good page is not told")
	}
	s.mu.Lock()
	s.held = s.held[1:]
	s.mu.Unlock()
}

// TestBounds: a user other than root has a share of the pages.
func TestBounds(t *testing.T) {
	s := &Server{users: map[uint32]int{}}
	for range maxOfUser {
		if !s.admit(7) {
			t.Fatal("refused within the share")
		}
	}
	if s.admit(7) || !s.admit(8) || s.Refused() != 1 {
		t.Errorf("beyond the share; %d refused", s.Refused())
	}
	for s.admit(0) {
	}
	if s.total != maxPages || s.admit(8) {
		t.Errorf("%d in all", s.total)
	}
	s.dismiss(7)
	if !s.admit(8) {
		t.Error("no room where one has gone")
	}
}

// TestKilled: a program that is killed in an operation leaves no hint behind.
func TestKilled(t *testing.T) {
	if p := os.Getenv("HINT_TEST_SOCKET"); p != "" {
		page := dial(t, p)
		page.Enter(Alltoallw, 9)
		time.Sleep(time.Minute) // it is killed
		return
	}
	path := filepath.Join(t.TempDir(), "hints.sock")
	s, _ := serve(t, path)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "HINT_TEST_SOCKET="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "its operation", func() bool { return s.Strictest() == Request{Op: Alltoallw, Hosts: 9} })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually.Holds(t, "its end", func() bool { return s.Strictest() == Request{} })
}

// FuzzHello reads messages that may hold anything.
func FuzzHello(f *testing.F) {
	f.Add(appendHello(nil), unix.UnixRights(1))
	f.Add([]byte{}, []byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b, oob []byte) {
		if err := decodeHello(b); err == nil && string(b) != string(appendHello(nil)) {
			t.Errorf("%x is taken", b)
		}
		if n := len(parseFiles(oob)); n > len(oob)/4 {
			t.Errorf("%d descriptors in %d bytes", n, len(oob))
		}
	})
}

// BenchmarkStrictest is the pacer's cost for 64 ranks, one of which is busy.
func BenchmarkStrictest(b *testing.B) {
	s := &Server{}
	for range 64 {
		s.held = append(s.held, &held{reader: reader{page: newPage()}})
	}
	for b.Loop() {
		s.held[0].enter(Alltoall, 4)
		s.Strictest()
		s.held[0].leave(Alltoall, 4)
	}
}

func BenchmarkEnter(b *testing.B) {
	p, err := Dial(filepath.Join(b.TempDir(), "nobody"))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for b.Loop() {
		p.Enter(Alltoall, 4)
		p.Leave(Alltoall, 4)
	}
}
