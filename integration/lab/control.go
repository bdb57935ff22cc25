package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// Request asks a lab that another process of the same user has built. One
// request and one reply, each a JSON value, make a connection.
type Request struct {
	Op   string   // a key of operations
	Site string   `json:",omitempty"`
	Host string   `json:",omitempty"`
	NAT  string   `json:",omitempty"` // of "nat"
	Link wan.Link // of "wan"
}

// Reply answers a Request. Picture is always there.
type Reply struct {
	Err     string         `json:",omitempty"`
	PIDs    map[string]int // the first process of each host that is on
	Picture string
	Stats   wan.Stats // of "stats"
}

// operations is what a Request may ask for.
var operations = map[string]func(*Lab, Request, *Reply) error{
	"show":  func(*Lab, Request, *Reply) error { return nil },
	"wan":   func(l *Lab, r Request, _ *Reply) error { return l.SetWAN(r.Site, r.Link) },
	"reset": func(l *Lab, r Request, _ *Reply) error { return l.ResetNAT(r.Site) },
	"cut":   func(l *Lab, r Request, _ *Reply) error { return l.Cut(r.Site) },
	"mend":  func(l *Lab, r Request, _ *Reply) error { return l.Mend(r.Site) },
	"stats": func(l *Lab, r Request, reply *Reply) (err error) {
		reply.Stats, err = l.WANStats(r.Site)
		return err
	},
	"nat": func(l *Lab, r Request, _ *Reply) error {
		nat, err := ParseNAT(r.NAT)
		if err != nil {
			return err
		}
		return l.SetNAT(r.Site, nat)
	},
	"off":    onHost((*Host).PowerOff),
	"boot":   onHost((*Host).Boot),
	"unplug": onHost((*Host).Unplug),
	"plug":   onHost((*Host).Plug),
}

func onHost(do func(*Host) error) func(*Lab, Request, *Reply) error {
	return func(l *Lab, r Request, _ *Reply) error {
		h, err := l.FindHost(r.Host)
		if err != nil {
			return err
		}
		return do(h)
	}
}

// maxRequest bounds a request, in bytes.
const maxRequest = 16 << 10

// controlAddr is where the lab of that name listens: an abstract socket, which
// leaves no file behind.
func controlAddr(name string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@meshmpi-lab-" + name}
}

// Serve answers requests under the given name until ctx ends. The name must
// not be taken by another lab.
func (l *Lab) Serve(ctx context.Context, name string) error {
	ln, err := net.ListenUnix("unix", controlAddr(name))
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("lab: a lab called %q runs already: end it, or name this one otherwise", name)
	}
	if err != nil {
		return fmt.Errorf("lab: listen for requests: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := ln.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lab: accept a request: %w", err)
		}
		wg.Go(func() { // ends within the connection's deadline
			defer c.Close()
			if err := l.answer(c); err != nil {
				l.log.Warn("request not answered", "err", err)
			}
		})
	}
}

// answer handles one connection.
func (l *Lab) answer(c *net.UnixConn) error {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if err := samePeer(c); err != nil {
		return err
	}
	r, err := decodeRequest(c)
	reply := Reply{PIDs: map[string]int{}}
	if err == nil {
		err = operations[r.Op](l, r, &reply)
	}
	if err != nil {
		reply.Err = err.Error()
	}
	for _, h := range l.hosts {
		if pid := h.PID(); pid != 0 {
			reply.PIDs[h.Name] = pid
		}
	}
	reply.Picture = l.Picture()
	return json.NewEncoder(c).Encode(reply)
}

// decodeRequest reads a request that asks for something there is.
func decodeRequest(from io.Reader) (r Request, err error) {
	if err := json.NewDecoder(io.LimitReader(from, maxRequest)).Decode(&r); err != nil {
		return r, fmt.Errorf("lab: read a request: %w", err)
	}
	if operations[r.Op] == nil {
		return r, fmt.Errorf("lab: there is no request %q", r.Op)
	}
	return r, r.Link.Validate()
}

// samePeer refuses other users than this process's own and root.
func samePeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return os.NewSyscallError("getsockopt", credErr)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("lab: refused a request of user %d", cred.Uid)
	}
	return nil
}

// Ask asks the lab of that name.
func Ask(ctx context.Context, name string, r Request) (Reply, error) {
	var reply Reply
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", controlAddr(name).Name)
	if err != nil {
		return reply, fmt.Errorf("lab: no lab called %q runs here: start one with lab up", name)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := json.NewEncoder(c).Encode(r); err != nil {
		return reply, fmt.Errorf("lab: ask lab %q: %w", name, err)
	}
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return reply, fmt.Errorf("lab: the answer of lab %q: %w", name, err)
	}
	if reply.Err != "" {
		return reply, errors.New(reply.Err)
	}
	return reply, nil
}

// Attach returns a host of a lab that another process has built, by the number
// of its first process (see Reply). Only its Command, Run and PID may be used.
func Attach(name string, pid int) (*Host, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("lab: attach to %s: %w", name, os.NewSyscallError("pidfd_open", err))
	}
	return &Host{Name: name, pid: pid, pidfd: os.NewFile(uintptr(fd), "pidfd of "+name)}, nil
}
