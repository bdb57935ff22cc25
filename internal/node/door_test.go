package node

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"github.com/meshmpi/meshmpi/internal/node/api"
	"go.uber.org/goleak"
)

// TestDoorShares: no user but root holds more than his share; who leaves makes
// room, once.
func TestDoorShares(t *testing.T) {
	var users shares[uint32]
	enter := func(uid uint32) bool { return users.enter(uid, caller{uid}.share()) }
	for range maxLocal {
		if !enter(1000) || !enter(0) {
			t.Fatal("refused within the share")
		}
	}
	if enter(1000) || !enter(0) || !enter(1001) {
		t.Error("the share is not user 1000's own")
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := &counted{Conn: ours, leave: func() { users.leave(1000) }}
	c.Close()
	c.Close()
	if !enter(1000) || enter(1000) {
		t.Error("closing a connection twice does not make room once")
	}
	users.leave(1001)
	if _, ok := users.open[1001]; ok {
		t.Error("who has left is remembered")
	}
}

// TestCallerName: a user is known by name whichever part of the host's name service
// knows him, and nobody by another's.
func TestCallerName(t *testing.T) {
	dir := t.TempDir()
	const getent = "#!/bin/sh\ncase \"$*\" in 'passwd -- 4000001') echo 'ada:x:4000001:100::/home/ada:/bin/sh';; *) echo 'eve:x:7:7::/:/bin/sh';; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte(getent), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d := must(openDoor(filepath.Join(dir, "meshd.sock")))(t)
	defer d.Close()
	for uid, want := range map[uint32]string{0: "root", 4000001: "ada"} {
		if got, err := d.nameOf(t.Context(), caller{uid}); err != nil || got != want {
			t.Errorf("user %d is %q, %v; want %q", uid, got, err, want)
		}
	}
	_, err := d.nameOf(t.Context(), caller{4000002})
	wantLine(t, err, "user id 4000002 has no name", "getent passwd")
}

func TestOpenDoor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshd.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // a dead daemon's
		t.Fatal(err)
	}
	d := must(openDoor(path))(t)
	client := must(net.Dial("unix", path))(t)
	defer client.Close()
	c := must(d.Accept())(t)
	if got := callerOf(c); got.uid != uint32(os.Getuid()) {
		t.Errorf("the caller is %+v, want user %d", got, os.Getuid())
	}
	if info := must(os.Stat(path))(t); info.Mode().Perm() != 0o666 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	c.Close()
	if len(d.users.open) != 0 {
		t.Errorf("connections are open after the last has closed: %v", d.users.open)
	}
	d.Close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket outlives the door")
	}
	_, err := openDoor(filepath.Join(t.TempDir(), strings.Repeat("long/", 30)))
	wantLine(t, err, "choose a shorter --state")
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	if got := callerOf(ours); got.uid != nobody || got.may() {
		t.Errorf("a connection of no known kind is %+v's", got)
	}
}

// serve runs the API of a daemon that has nothing but a journal.
func serve(t *testing.T) (d *daemon, dir string) {
	t.Helper()
	dir = t.TempDir()
	d = knowing()
	d.log = slog.New(slog.DiscardHandler)
	d.door = must(openDoor(filepath.Join(dir, "meshd.sock")))(t)
	ctx, cancel := context.WithCancel(t.Context())
	srv := d.server(ctx)
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(d.door) }()
	t.Cleanup(func() { cancel(); srv.Close(); <-done })
	return d, dir
}

func TestRequests(t *testing.T) {
	_, dir := serve(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "meshd.sock"))
	}}}
	for _, tc := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/v2/status", "", 404, "knows no GET /v2/status"},
		{"GET", "/v1/tokens", "", 409, "not a hub"},
		{"POST", "/v1/tokens", "{", 409, "not a hub"},
		{"POST", "/v1/sites", "{", 409, "not a hub"},
		{"POST", "/v1/links", "{", 409, "not a hub"},
		{"POST", "/v1/ticket", "{", 400, "the request's body"},
		{"POST", "/v1/ticket", `{"host":"nobody"}`, 400, "no node \\\"nobody\\\""},
		{"POST", "/v1/ticket", `{"host":"a1","key":"rubbish"}`, 400, "no SSH public key"},
		{"POST", "/v1/ticket", `{"host":"` + strings.Repeat("x", maxRequest) + `"}`, 400, "the request's body"},
	} {
		req := must(http.NewRequest(tc.method, "http://meshd"+tc.path, strings.NewReader(tc.body)))(t)
		resp := must(client.Do(req))(t)
		body := must(io.ReadAll(resp.Body))(t)
		resp.Body.Close()
		if resp.StatusCode != tc.status || !strings.Contains(string(body), tc.says) {
			t.Errorf("%s %s %.40s: %d %s; want %d with %q", tc.method, tc.path, tc.body, resp.StatusCode, body, tc.status, tc.says)
		}
	}
	before := goleak.IgnoreCurrent()
	long := must(http.NewRequest("GET", "http://meshd/v2/status", nil))(t)
	long.Header.Set("X-Long", strings.Repeat("x", 4*maxRequest))
	resp := must(client.Do(long))(t)
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header without bounds: %s", resp.Status)
	}
	eventually.Holds(t, "the server has let go of who was refused", func() bool { return goleak.Find(before) == nil })
}

// TestEventStream: a reader gets what was and what comes, and the stream ends
// with the reader.
func TestEventStream(t *testing.T) {
	d, dir := serve(t)
	d.events.emit("node", "b1", "was")
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	err := api.Dial(dir).Events(ctx, func(e api.Event) error {
		if got = append(got, e.Text); len(got) == 1 {
			d.events.emit("node", "b1", "comes")
		} else {
			cancel()
		}
		return nil
	})
	if err != nil || strings.Join(got, " ") != "was comes" {
		t.Errorf("events %q, %v", got, err)
	}
}

// TestSlowReader: who asks for events and never reads is let go.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := knowing()
		d.log = slog.New(slog.DiscardHandler)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ours, theirs := net.Pipe() // without any buffer
		srv := d.server(ctx)
		ln := &oneConn{conn: ours, done: make(chan struct{})}
		go srv.Serve(ln)
		if _, err := io.WriteString(theirs, "GET /v1/events HTTP/1.1\r\nHost: meshd\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if line := must(bufio.NewReaderSize(theirs, 16).ReadString('\n'))(t); !strings.Contains(line, "200") {
			t.Fatalf("the stream begins with %q", line)
		}
		for range eventsKept {
			d.events.emit("node", "b1", strings.Repeat("x", 100))
		}
		time.Sleep(2 * writeTime)
		synctest.Wait()
		if n := len(d.events.listeners); n != 0 {
			t.Errorf("%d listeners are left of one who does not read", n)
		}
		srv.Close()
		theirs.Close()
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { close(l.done); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }
