package mpishim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// goNode is an agent on a node and what we know of it.
type goNode struct {
	host   Host
	cancel context.CancelFunc
	done   chan struct{} // closed when all that serves it has ended

	over bool  // owned by the job: the agent has ended
	err  error // owned by the job: why

	errs bytes.Buffer // what the agent's own standard error said; whole when done

	mu       sync.Mutex // guards what follows
	queue    []frame
	hungUp   bool
	finished bool          // frameEnd was queued
	more     chan struct{} // size 1: queue or hungUp has changed
}

// startNode starts an agent and what reads and writes its streams.
func (j *goJob) startNode(h Host) *goNode {
	ctx, cancel := context.WithCancel(context.WithoutCancel(j.ctx))
	n := &goNode{host: h, cancel: cancel, done: make(chan struct{}), more: make(chan struct{}, 1)}
	downR, downW := io.Pipe()
	upR, upW := io.Pipe()
	opt := exec.RunOptions{Command: ranksCommand, Stdin: downR, Stdout: upW, Stderr: limit(&n.errs, 4<<10), Silence: agentSilence}
	remote := j.remote
	if h.Self {
		remote = j.localAgent
	}
	var parts sync.WaitGroup
	parts.Go(func() { n.write(downW) })
	var bad error
	parts.Go(func() {
		if bad = j.listen(n, upR); !errors.Is(bad, io.EOF) {
			cancel() // whatever it is that speaks there
		}
		io.Copy(io.Discard, upR) // so that the agent can end
	})
	go func() { // ends with the agent
		code, err := remote(ctx, h.Name, opt)
		upW.Close()
		downR.Close()
		n.hangUp()
		parts.Wait()
		cancel()
		close(n.done)
		j.post(func() {
			switch n.over = true; {
			case bad != nil && !errors.Is(bad, io.EOF):
				n.err = fmt.Errorf("node %s: %w", h.Name, bad)
			case err != nil: // it names the node
				n.err = err
			case code != 0:
				n.err = fmt.Errorf("node %s: the agent ended with code %d: %s", h.Name, code, n.said())
			}
			j.nodeLost(n)
		})
	}()
	return n
}

// said is what an agent that has ended complained of, in a line.
func (n *goNode) said() string {
	text := strings.Join(strings.Fields(n.errs.String()), " ")
	if text == "" {
		return "it said nothing"
	}
	return strings.TrimPrefix(text, agentMark)
}

// send queues a frame. Frames are few: starts, signals and a window of input.
func (n *goNode) send(f frame) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.hungUp {
		n.queue = append(n.queue, f)
		n.poke()
	}
}

// finish has the agent end its processes and itself; what they say meanwhile is shown.
func (n *goNode) finish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.finished && !n.hungUp {
		n.finished = true
		n.queue = append(n.queue, frame{kind: frameEnd})
		n.poke()
	}
}

// hangUp ends the agent's input, and so the agent, once what is queued is sent.
func (n *goNode) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hungUp = true
	n.poke()
}

func (n *goNode) poke() {
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// write sends what is queued until we hang up or nobody reads.
func (n *goNode) write(w *io.PipeWriter) {
	defer w.Close()
	for {
		n.mu.Lock()
		list, end := n.queue, n.hungUp
		n.queue = nil
		n.mu.Unlock()
		for _, f := range list {
			if _, err := w.Write(appendFrame(nil, f)); err != nil {
				return
			}
		}
		if len(list) > 0 {
			continue
		}
		if end {
			return
		}
		<-n.more
	}
}

// listen takes an agent's frames apart until they end, and returns when all is shown.
func (j *goJob) listen(n *goNode, r io.Reader) error {
	in := bufio.NewReaderSize(r, maxFrame)
	if _, err := readHello(in); err != nil {
		return err
	}
	t := &talk{under: map[uint32]int{}, more: make(chan struct{}, 1)}
	var showing sync.WaitGroup
	showing.Go(func() { j.show(n, t) })
	defer showing.Wait()
	defer t.close()
	for {
		f, err := readFrame(in)
		if err == nil {
			err = j.frame(n, f, t)
		}
		if err != nil {
			return err
		}
	}
}

// frame takes one frame of an agent, which may only speak of its own processes.
func (j *goJob) frame(n *goNode, f frame, t *talk) error {
	j.mu.Lock()
	g := j.labels[int(f.proc)]
	again := false
	if g != nil && g.node == n && f.kind == frameExit {
		again, g.told = g.told, true
	}
	j.mu.Unlock()
	if g == nil || g.node != n {
		return fmt.Errorf("a frame about process %d: %w", f.proc, errFrame)
	}
	switch f.kind {
	case frameOut, frameErr:
		if !t.add(said{g: g, frame: f}) {
			return fmt.Errorf("more output than the window: %w", errFrame)
		}
	case frameTaken:
		j.taken()
	case frameExit:
		r, err := parseExit(f.data)
		switch {
		case err != nil:
			return err
		case again:
			return fmt.Errorf("process %d ended twice: %w", f.proc, errFrame)
		}
		t.add(said{g: g, frame: frame{kind: f.kind, proc: f.proc}, exit: r})
		time.AfterFunc(stuckTime, func() { j.post(func() { j.exited(g, r) }) }) // were nobody to read what it said
	default:
		return fmt.Errorf("a frame of kind %c from an agent: %w", f.kind, errFrame)
	}
	return nil
}

// talk is what the processes of a node have said, on its way to the screen.
type talk struct {
	mu    sync.Mutex // guards what follows
	queue []said
	under map[uint32]int // by process: frames of output in queue
	shut  bool
	more  chan struct{} // size 1: queue or shut has changed
}

// said is a frame of output, or of a process's end.
type said struct {
	frame
	g    *goProc
	exit exitReport
}

// add queues what a node has said, and reports whether that is no more than it may.
func (t *talk) add(s said) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.kind != frameExit {
		if t.under[s.proc]++; t.under[s.proc] > outputWindow {
			return false
		}
	}
	t.queue = append(t.queue, s)
	t.poke()
	return true
}

// close says that nothing comes any more.
func (t *talk) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = true
	t.poke()
}

func (t *talk) poke() {
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// take returns what is queued, and whether that is all.
func (t *talk) take() (list []said, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.queue = t.queue, nil
	return list, t.shut
}

// shown takes note that a frame of output was shown.
func (t *talk) shown(proc uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.under[proc]--
}

// show shows what a node's processes say, as fast as the screen takes it.
func (j *goJob) show(n *goNode, t *talk) {
	var streams [2]*demux
	for i := range streams {
		streams[i] = newDemux(nil, func(id int, line []byte) { j.scr.text(i+1, id, line) })
	}
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		all := false
		select {
		case <-t.more:
			var list []said
			list, all = t.take()
			for _, s := range list {
				j.showOne(n, t, s, streams)
			}
			quiet.Reset(quietTime)
			if !all {
				continue
			}
		case <-quiet.C:
		}
		for _, d := range streams {
			d.flushAll()
		}
		if all {
			return
		}
	}
}

func (j *goJob) showOne(n *goNode, t *talk, s said, streams [2]*demux) {
	id := int(s.proc)
	switch s.kind {
	case frameOut:
		streams[0].from(id, s.data)
	case frameErr:
		streams[1].from(id, s.data)
	default:
		for _, d := range streams {
			d.finish(id)
		}
		j.post(func() { j.exited(s.g, s.exit) })
		return
	}
	t.shown(s.proc)
	n.send(frame{frameShown, s.proc, nil})
}

// clean bounds what another node says in a line of ours.
func clean(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), most)]
}
