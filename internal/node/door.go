package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/exec"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"
)

// maxLocal bounds the connections that one user other than root holds at a time:
// an mpirun starts some 128 agents at once, and a hostile program wants them all.
const maxLocal = 256

// door is the local socket: it knows who calls and lets nobody crowd out others.
type door struct {
	net.Listener
	refused atomic.Uint64 // connections beyond a user's share
	users   shares[uint32]
	asking  singleflight.Group // for users' names
	naming  chan struct{}      // of size nameUsers: who are being looked up
}

// openDoor listens at path, in place of what a dead daemon left there. The
// caller holds the state directory's lock.
func openDoor(path string) (*door, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("node: local socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("node: local socket: %s has %d bytes, sockets' names at most %d; choose a shorter --state", path, len(path), len(unix.RawSockaddrUnix{}.Path)-1)
	}
	if err != nil {
		return nil, fmt.Errorf("node: local socket: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		ln.Close()
		return nil, fmt.Errorf("node: local socket: %w", err)
	}
	return &door{Listener: ln, naming: make(chan struct{}, nameUsers)}, nil
}

// Accept returns the next connection of a user who has not too many.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := credentials(c)
		if d.users.enter(who.uid, who.share()) {
			return &localConn{counted: counted{Conn: c, leave: func() { d.users.leave(who.uid) }}, who: who}, nil
		}
		d.refused.Add(1)
		c.Close()
	}
}

// shares counts what each of several holders has open.
type shares[K comparable] struct {
	mu   sync.Mutex // guards open
	open map[K]int
}

// enter counts one more of k's, unless it has that many already.
func (s *shares[K]) enter(k K, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[k] >= most {
		return false
	}
	if s.open == nil {
		s.open = map[K]int{}
	}
	s.open[k]++
	return true
}

func (s *shares[K]) leave(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[k]--; s.open[k] == 0 {
		delete(s.open, k)
	}
}

// counted is a connection that is part of a share.
type counted struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}

// localConn is a connection of somebody known.
type localConn struct {
	counted
	who caller
}

// caller is the local process that asks, as the kernel knows it.
type caller struct{ uid uint32 }

// nobody is a caller that the kernel does not name; no user has this id.
const nobody = ^uint32(0)

// callerKey is the key of the caller in a request's context.
type callerKey struct{}

func callerOf(c net.Conn) caller {
	if lc, ok := c.(*localConn); ok {
		return lc.who
	}
	return caller{nobody}
}

func callerIn(r *http.Request) caller {
	if who, ok := r.Context().Value(callerKey{}).(caller); ok {
		return who
	}
	return caller{nobody}
}

// may reports whether the caller may change the network.
func (c caller) may() bool { return c.uid == 0 || int64(c.uid) == int64(os.Getuid()) }

// share is how many connections the caller may hold at a time.
func (c caller) share() int {
	if c.uid == 0 {
		return math.MaxInt
	}
	return maxLocal
}

// Bounds of what asks the host's name service: time, and users at a time, since each
// starts a process and a user may have thousands of ids (subuid(5)).
const (
	nameTime  = 5 * time.Second
	nameUsers = 16
)

// nameOf returns a caller's user name. Where package user does not know it, as that of
// an account in LDAP if meshd was built without cgo, the host's name service is asked.
func (d *door) nameOf(ctx context.Context, who caller) (string, error) {
	id := strconv.FormatUint(uint64(who.uid), 10)
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		return u.Username, nil
	}
	name, err, _ := d.asking.Do(id, func() (any, error) { // the ranks of a job ask at once
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nameTime)
		defer cancel()
		select {
		case d.naming <- struct{}{}:
			defer func() { <-d.naming }()
		case <-ctx.Done():
		}
		name := exec.UserName(ctx, who.uid)
		switch {
		case name != "":
			return name, nil
		case ctx.Err() != nil:
			return "", fmt.Errorf("this host's name service does not say within %v who user id %s is; see getent passwd %s, and try again", nameTime, id, id)
		}
		return "", fmt.Errorf("user id %s has no name on this host, so nobody can vouch for it; see getent passwd %s", id, id)
	})
	return name.(string), err
}

// credentials asks the kernel who is at the other end (SO_PEERCRED).
func credentials(c net.Conn) caller {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return caller{nobody}
	}
	rc, err := uc.SyscallConn()
	if err != nil {
		return caller{nobody}
	}
	var cred *unix.Ucred
	if cerr := rc.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return caller{nobody}
	}
	return caller{cred.Uid}
}
