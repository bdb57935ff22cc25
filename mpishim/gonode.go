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

	mu     sync.Mutex // guards what follows
	queue  []frame
	hungUp bool
	more   chan struct{} // size 1: queue or hungUp has changed
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

// listen takes an agent's frames apart until they end.
func (j *goJob) listen(n *goNode, r io.Reader) error {
	in := bufio.NewReaderSize(r, maxFrame)
	if _, err := readHello(in); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	frames, failed := readFrames(in, stop, func() {})
	var streams [2]*demux
	for i := range streams {
		streams[i] = newDemux(nil, func(id int, line []byte) { j.scr.text(i+1, id, line) })
	}
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case f := <-frames:
			if err := j.frame(n, f, streams); err != nil {
				return err
			}
			quiet.Reset(quietTime)
		case err := <-failed:
			for _, d := range streams {
				d.flushAll()
			}
			return err
		case <-quiet.C:
			for _, d := range streams {
				d.flushAll()
			}
		}
	}
}

// frame takes one frame of an agent, which may only speak of its own processes.
func (j *goJob) frame(n *goNode, f frame, streams [2]*demux) error {
	j.mu.Lock()
	g := j.labels[int(f.proc)]
	j.mu.Unlock()
	if g == nil || g.node != n {
		return fmt.Errorf("a frame about process %d: %w", f.proc, errFrame)
	}
	switch id := int(f.proc); f.kind {
	case frameOut:
		streams[0].from(id, f.data)
	case frameErr:
		streams[1].from(id, f.data)
	case frameTaken:
		j.taken()
	case frameExit:
		r, err := parseExit(f.data)
		if err != nil {
			return err
		}
		for _, d := range streams {
			d.finish(id)
		}
		j.post(func() { j.exited(g, r) })
	default:
		return fmt.Errorf("a frame of kind %c from an agent: %w", f.kind, errFrame)
	}
	return nil
}

// clean bounds what another node says in a line of ours.
func clean(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), most)]
}
