package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/integration/wan"
	"github.com/meshmpi/meshmpi/internal/threads"
	"golang.org/x/sys/unix"
)

// wanRequest is what the process of emulators is asked, a line of JSON each,
// answered by a line with a wanReply.
type wanRequest struct {
	Op        string // "set", "plain", "stats", "total", "record" or "records"
	Site      string
	Near, Far string
	MTU       int
	Link      wan.Link
	Bypassed  bool          // see wan.Config
	For       time.Duration // of "record"
}

type wanReply struct {
	Err     string
	Stats   wan.Stats
	Total   wan.Counters
	Records wan.Records
}

// wanProcess runs the emulators of a lab outside this process, whose garbage
// collection and load would blur them. It starts when first needed, and ends
// when its standard input does.
type wanProcess struct {
	space *netspace

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Decoder
}

func (w *wanProcess) set(r wanRequest) error {
	r.Op = "set"
	_, err := w.call(r, true)
	return err
}

func (w *wanProcess) plain(site string) error {
	_, err := w.call(wanRequest{Op: "plain", Site: site}, false)
	return err
}

func (w *wanProcess) stats(site string) (wan.Stats, error) {
	r, err := w.call(wanRequest{Op: "stats", Site: site}, false)
	return r.Stats, err
}

// total returns the sums of the counters of all links.
func (w *wanProcess) total() (wan.Counters, error) {
	r, err := w.call(wanRequest{Op: "total"}, false)
	return r.Total, err
}

func (w *wanProcess) record(site string, d time.Duration) error {
	_, err := w.call(wanRequest{Op: "record", Site: site, For: d}, false)
	return err
}

func (w *wanProcess) records(site string) (wan.Records, error) {
	r, err := w.call(wanRequest{Op: "records", Site: site}, false)
	return r.Records, err
}

// call asks the process, which it starts if need be and start says so.
func (w *wanProcess) call(r wanRequest, start bool) (wanReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil && !start {
		return wanReply{}, nil
	}
	if err := w.start(); err != nil {
		return wanReply{}, err
	}
	var reply wanReply
	err := json.NewEncoder(w.stdin).Encode(r)
	if err == nil {
		err = w.out.Decode(&reply)
	}
	if err == nil && reply.Err != "" {
		err = errors.New(reply.Err)
	}
	if err != nil {
		return reply, fmt.Errorf("lab: %s the link of site %s: %w", r.Op, r.Site, err)
	}
	return reply, nil
}

// start is called with mu held.
func (w *wanProcess) start() error {
	if w.cmd != nil {
		return nil
	}
	cmd := role(roleWAN)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.space.do(cmd.Start); err != nil {
		return fmt.Errorf("lab: start the emulators: %w", err)
	}
	w.cmd, w.stdin, w.out = cmd, stdin, json.NewDecoder(stdout)
	return nil
}

func (w *wanProcess) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return nil
	}
	_ = w.stdin.Close()
	err := w.cmd.Wait()
	w.cmd = nil
	if err != nil {
		return fmt.Errorf("lab: the emulators ended: %w", err)
	}
	return nil
}

// precede gives every thread of this process, and those to come, the emulators' priority.
// Go has each goroutine leave its processor after 10 ms, and another thread gives it back.
// Had that an ordinary priority, the emulator would stand still beside busy programs, for up
// to 50 ms, and drop as one burst what had come meanwhile.
func precede() error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: wan.Priority}
	return threads.Each(func(id int) error {
		return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(id, &attr, 0))
	})
}

// playWAN is the life of the process of emulators.
func playWAN() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM)
	debug.SetGCPercent(-1) // frames make no garbage
	debug.SetMemoryLimit(1 << 30)
	_ = precede() // without privilege they are as good as they can be
	emulators := wanEmulators{}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r wanRequest
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("lab: read a request for emulators: %w", err)
		}
		reply, err := emulators.serve(r)
		if err != nil {
			reply.Err = err.Error()
		}
		if err := out.Encode(reply); err != nil {
			return fmt.Errorf("lab: answer for emulators: %w", err)
		}
	}
}

// wanEmulators are the running emulators by site; end stops one and returns
// when it has stopped.
type wanEmulators map[string]struct {
	*wan.Emulator
	end func() error
}

func (all wanEmulators) serve(r wanRequest) (reply wanReply, err error) {
	e, running := all[r.Site]
	switch r.Op {
	case "stats":
		if running {
			reply.Stats = e.Stats()
		}
	case "total":
		for _, e := range all {
			s := e.Stats()
			reply.Total = reply.Total.Plus(s.Up).Plus(s.Down)
		}
	case "record":
		if !running {
			return reply, errors.New("it is plain")
		}
		err = e.Record(r.For)
	case "records":
		if running {
			reply.Records = e.Records()
		}
	case "plain":
		if running {
			delete(all, r.Site)
			err = e.end()
		}
	case "set":
		if running {
			return reply, e.Set(r.Link)
		}
		if e.Emulator, err = wan.New(wan.Config{Near: r.Near, Far: r.Far, MTU: r.MTU, Bypassed: r.Bypassed}, r.Link); err != nil {
			return reply, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }() // ends in end, or with the process
		e.end = func() error {
			cancel()
			return <-done
		}
		all[r.Site] = e
	default:
		err = fmt.Errorf("lab: there is no request %q", r.Op)
	}
	return reply, err
}
