package mpishim

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What meshrun and its agent on a node say to each other, on the agent's
// standard streams:
//
//	agentHello "\n"                 first, from the agent: login scripts may have talked before
//	kind 1 | proc 4 | length 4 | payload    big-endian
//
// proc numbers the processes of the job over all nodes.
const (
	frameStart  = 's' // down: startSpec as JSON: start these processes
	frameInput  = 'i' // down: bytes for standard input; none is its end
	frameSignal = 'k' // down: one byte, the signal, for the process's group
	frameShown  = 'd' // down: one frame of output was shown
	frameEnd    = 'q' // down: end every process, and then yourself
	frameOut    = 'o' // up: bytes of standard output
	frameErr    = 'e' // up: bytes of standard error
	frameTaken  = 'a' // up: one frame of input was passed on
	frameExit   = 'x' // up: exitReport as JSON: the process has ended, or could not start
)

const (
	agentHello  = "\x00meshrun-ranks 4"
	frameHeader = 9
	maxFrame    = 64 << 10 // bytes of a payload
	maxStart    = 8 << 20  // bytes of frameStart's
	maxTalk     = 64 << 10 // bytes before the agent's hello
	inputWindow = 16       // frames of standard input under way

	outputWindow = 16 // frames of one process's output under way
)

// errFrame says that the other end is no meshrun, or another version's.
var errFrame = errors.New("it does not speak as meshrun's agent does; install the same version on all nodes")

// frame is one message.
type frame struct {
	kind byte
	proc uint32
	data []byte
}

// appendFrame packs f.
func appendFrame(b []byte, f frame) []byte {
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint32(b, f.proc)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.data)))
	return append(b, f.data...)
}

// readFrame reads the next frame. Its error is io.EOF only between frames.
func readFrame(r io.Reader) (frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: h[0], proc: binary.BigEndian.Uint32(h[1:])}
	n, most := binary.BigEndian.Uint32(h[5:]), uint32(maxFrame)
	switch f.kind {
	case frameStart:
		most = maxStart
	case frameInput, frameSignal, frameShown, frameEnd, frameOut, frameErr, frameTaken, frameExit:
	default:
		return frame{}, fmt.Errorf("a frame of kind %d: %w", f.kind, errFrame)
	}
	if n > most {
		return frame{}, fmt.Errorf("a frame of %d bytes: %w", n, errFrame)
	}
	var data bytes.Buffer // grows with what comes, not with what is announced
	if got, err := io.CopyN(&data, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) && got < int64(n) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	f.data = data.Bytes()
	return f, nil
}

// readFrames reads frames until one cannot be read, which is sent to failed, or stop is
// closed and what it reads has ended. before is called before each.
func readFrames(r io.Reader, stop <-chan struct{}, before func()) (frames <-chan frame, failed <-chan error) {
	some, end := make(chan frame), make(chan error, 1)
	go func() { // ends as that says
		for {
			before()
			f, err := readFrame(r)
			if err != nil {
				end <- err
				return
			}
			select {
			case some <- f:
			case <-stop:
				return
			}
		}
	}()
	return some, end
}

// readHello skips what came before the agent's first word, and returns it.
func readHello(r *bufio.Reader) (talk []byte, err error) {
	for len(talk) < maxTalk {
		b, err := r.ReadByte()
		if err != nil {
			return talk, err
		}
		if talk = append(talk, b); b == '\n' && bytes.HasSuffix(talk, []byte(agentHello+"\n")) {
			return talk[:len(talk)-len(agentHello)-1], nil
		}
	}
	return talk, errFrame
}

// startSpec has an agent start processes.
type startSpec struct {
	Env   words  // NAME=value, over the node's own
	Wdir  string // "": the agent's
	Must  bool   // a node without Wdir is an error; else the home directory will do
	Apps  []appSpec
	Procs []procSpec
}

type appSpec struct {
	Line words // the program and its arguments
}

type procSpec struct {
	Proc  uint32
	App   int
	Env   words
	Stdin bool // it reads frameInput; the others read nothing
}

// exitReport is how a process ended.
type exitReport struct {
	Code int    // its exit code, 128+n for signal n
	PID  int    // there; 0 if it could not start
	What string // in words, for the line about it; "" for code 0
}
