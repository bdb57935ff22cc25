package mpishim

import (
	"errors"
	"os"
	osexec "os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// run starts one process and what attends to it.
func (a *ranksAgent) run(ps procSpec, cmd *osexec.Cmd) error {
	var ours, theirs [3]*os.File
	defer func() {
		for _, f := range theirs {
			f.Close() // a nil file answers with an error
		}
	}()
	for i := range ours {
		if i == 0 && !ps.Stdin {
			continue // /dev/null
		}
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
			return err
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	if ps.Stdin {
		cmd.Stdin = theirs[0]
	}
	cmd.Stdout, cmd.Stderr = theirs[1], theirs[2]
	p := &rankProc{id: ps.Proc, cmd: cmd}
	if ps.Stdin {
		p.input = make(chan []byte, inputWindow+1)
	}
	started := make(chan error)
	a.starts <- func() { started <- a.begin(p) }
	if err := <-started; err != nil {
		for _, f := range ours {
			f.Close()
		}
		return err
	}
	if ps.Stdin {
		go a.feed(p, ours[0]) // ends when attend closes the pipe, or with the input's end
	}
	a.all.Go(func() { a.attend(p, ours) })
	return nil
}

// begin starts a process and takes note of it, before orphans are looked for again.
func (a *ranksAgent) begin(p *rankProc) error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.procs[p.id] = p
	a.credit[p.id] = make(chan struct{}, outputWindow)
	return nil
}

// has reports whether a process is one of ours, and no orphan.
func (a *ranksAgent) has(pid int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.procs {
		if p.cmd.Process.Pid == pid {
			return true
		}
	}
	return false
}

// attend passes a process's output on, and at last how it ended.
func (a *ranksAgent) attend(p *rankProc, files [3]*os.File) {
	a.mu.Lock()
	credit := a.credit[p.id]
	a.mu.Unlock()
	var output sync.WaitGroup
	for i, kind := range []byte{frameOut, frameErr} {
		output.Go(func() {
			pass(files[i+1], func(b []byte) error {
				select {
				case credit <- struct{}{}:
					return a.send(frame{kind, p.id, b})
				case <-a.over:
					return os.ErrClosed
				}
			})
		})
	}
	status := p.cmd.Wait()
	a.mu.Lock()
	delete(a.procs, p.id)
	if p.input != nil {
		close(p.input)
	}
	a.mu.Unlock()
	for _, f := range files[1:] { // others may hold the pipes
		f.SetReadDeadline(time.Now().Add(ranksDrain))
	}
	output.Wait()
	for _, f := range files {
		f.Close()
	}
	r := exitOf(status)
	if r.PID = p.cmd.Process.Pid; r.Code != 0 && a.told.Load() {
		r.What += " when its node ended the session; see meshctl status"
	}
	a.mu.Lock()
	delete(a.credit, p.id)
	a.mu.Unlock()
	a.report(p.id, r)
}

// pass sends what comes through a pipe, until its end, or its deadline and all that is
// there by then: meshrun may have let us wait for longer than that.
func pass(f *os.File, send func([]byte) error) {
	buf := make([]byte, maxFrame/2)
	once := func(most int) (int, error) {
		n, err := f.Read(buf[:min(most, len(buf))])
		if n > 0 {
			if serr := send(buf[:n]); serr != nil {
				return n, serr
			}
		}
		return n, err
	}
	var err error
	for err == nil {
		_, err = once(len(buf))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	f.SetReadDeadline(time.Time{})
	for left := held(f); left > 0; {
		n, err := once(left)
		if left -= n; err != nil {
			return
		}
	}
}

// held is how many bytes wait in a pipe.
func held(f *os.File) (n int) {
	_ = control(f, func(fd int) (err error) { // none, where that is not known
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return n
}
