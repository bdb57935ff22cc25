package mpishim

import (
	"bufio"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Open MPI's mpirun loses output that it is to tag: 4.1's buffers hold 8 KiB with the
// tags, and it drops what lines shorter than a tag make longer than that. Without tags
// lines of ranks mix. So its ranks send what they say by connections of their own to
// meshrun, each "meshrun-rank 1 SECRET RANK\n" and then frames.
const (
	rankHello    = "meshrun-rank 1"
	maxRankHello = 128              // bytes
	rankDial     = 20 * time.Second // for a connection, and for the hello
	lastWords    = 5 * time.Second  // for what is under way when the launcher has ended
	acceptAgain  = 100 * time.Millisecond
)

// rankOutput is a rank's connection, and what its program says it by.
type rankOutput struct {
	conn *net.TCPConn
	rank uint32

	mu sync.Mutex // guards writing to conn

	passing sync.WaitGroup
	ours    [2]*os.File
	theirs  [2]*os.File
}

// dialOutput connects to meshrun where it waits for that; nil where it does not.
func dialOutput() (*rankOutput, error) {
	addr := os.Getenv(varOutput)
	if os.Unsetenv(varOutput); addr == "" {
		return nil, nil
	}
	rank, err := strconv.ParseUint(rankNumber(), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("cannot tell its rank: %w", err)
	}
	conn, err := net.DialTimeout("tcp", addr, rankDial)
	if err != nil {
		return nil, fmt.Errorf("cannot reach meshrun: %w; see meshctl status", err)
	}
	if _, err := fmt.Fprintf(conn, "%s %s %d\n", rankHello, jobSecret(), rank); err != nil {
		return nil, fmt.Errorf("cannot speak to meshrun: %w", err)
	}
	return &rankOutput{conn: conn.(*net.TCPConn), rank: uint32(rank)}, nil
}

// close returns when meshrun has taken all, or is gone.
func (o *rankOutput) close() {
	if o.conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, o.conn) // it closes
	}
	o.conn.Close()
}

func (o *rankOutput) send(kind byte, b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.conn.Write(appendFrame(nil, frame{kind, o.rank, b}))
	return err
}

// Write says something of our own on the rank's standard error.
func (o *rankOutput) Write(b []byte) (int, error) { return len(b), o.send(frameErr, b) }

// attach has a command say what it says by o: through a terminal where the launcher has
// given us one, so that programs write their lines when they are whole, as they did.
func (o *rankOutput) attach(cmd *osexec.Cmd) (err error) {
	o.ours[0], o.theirs[0], err = pipeLike(os.Stdout)
	if err == nil {
		o.ours[1], o.theirs[1], err = os.Pipe()
	}
	cmd.Stdout, cmd.Stderr = o.theirs[0], o.theirs[1]
	return err
}

// begin passes on what the command says.
func (o *rankOutput) begin() {
	for i, kind := range []byte{frameOut, frameErr} {
		o.theirs[i].Close()
		o.passing.Go(func() { pass(o.ours[i], func(b []byte) error { return o.send(kind, b) }) })
	}
}

// end waits until what it has said is sent; the command has ended.
func (o *rankOutput) end() {
	for _, f := range o.ours {
		f.SetReadDeadline(time.Now().Add(ranksDrain)) // others may hold it open
	}
	o.passing.Wait()
}

// pipeLike is os.Pipe, or where like is a terminal one with the same settings.
func pipeLike(like *os.File) (r, w *os.File, err error) {
	mode, err := unix.IoctlGetTermios(int(like.Fd()), unix.TCGETS)
	if err != nil {
		return os.Pipe()
	}
	if r, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return os.Pipe()
	}
	n := 0
	err = control(r, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	if err == nil {
		w, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err == nil {
		err = control(w, func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, mode) })
	}
	if err != nil {
		r.Close()
		w.Close() // a nil file answers with an error
		return os.Pipe()
	}
	return r, w, nil
}

// control calls f with a file's descriptor, which stays as it is.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// outputs is meshrun's end: it takes what ranks say, and shows it.
type outputs struct {
	ln     net.Listener
	scr    *screen
	secret string

	taking sync.WaitGroup
	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]struct{}
	ending bool
}

func listenOutputs(addr netip.Addr, scr *screen) (*outputs, error) {
	ln, err := listenRanks(addr)
	if err != nil {
		return nil, err
	}
	o := &outputs{ln: ln, scr: scr, secret: scr.secret, conns: map[net.Conn]struct{}{}}
	o.taking.Go(o.accept)
	return o, nil
}

// accept takes connections until the listener is closed. What else it fails for,
// such as too many open files, passes: ranks wait in the listener's queue.
func (o *outputs) accept() {
	for {
		conn, err := o.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptAgain)
			continue
		}
		o.mu.Lock()
		if o.ending {
			conn.Close()
		} else {
			o.conns[conn] = struct{}{}
			o.taking.Go(func() {
				o.take(conn)
				conn.Close()
				o.mu.Lock()
				defer o.mu.Unlock()
				delete(o.conns, conn)
			})
		}
		o.mu.Unlock()
	}
}

// take shows what one rank says until its connection ends.
func (o *outputs) take(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(rankDial))
	in := bufio.NewReaderSize(conn, maxFrame)
	rank, ok := o.hello(in)
	if !ok {
		return
	}
	o.scr.begun()
	conn.SetReadDeadline(time.Time{})
	var streams [2]*demux
	for i := range streams {
		streams[i] = newDemux(nil, func(rank int, line []byte) { o.scr.line(i+1, rank, line) })
	}
	stop := make(chan struct{})
	defer close(stop)
	frames, failed := readFrames(in, stop, func() { o.beforeRead(conn) })
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case f := <-frames:
			switch f.kind {
			case frameOut:
				streams[0].from(rank, f.data)
			case frameErr:
				streams[1].from(rank, f.data)
			}
			quiet.Reset(quietTime)
			continue
		case <-failed:
			frames = nil
		case <-quiet.C:
		}
		for _, d := range streams {
			d.flushAll()
		}
		if frames == nil {
			return
		}
	}
}

// beforeRead bounds how long we wait for a rank when the launcher has ended.
func (o *outputs) beforeRead(conn net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending {
		conn.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// hello reads which rank it is; whoever else finds the port does not know the secret.
func (o *outputs) hello(in *bufio.Reader) (rank int, ok bool) {
	var line strings.Builder
	for line.Len() < maxRankHello {
		b, err := in.ReadByte()
		if err != nil {
			return 0, false
		}
		if b == '\n' {
			return rankHelloOf(line.String(), o.secret)
		}
		line.WriteByte(b)
	}
	return 0, false
}

// end waits for what is under way, the launcher having ended, and closes all.
func (o *outputs) end() {
	o.mu.Lock()
	o.ending = true
	for conn := range o.conns {
		conn.SetReadDeadline(time.Now().Add(lastWords))
	}
	o.mu.Unlock()
	o.ln.Close()
	o.taking.Wait()
}

// rankHelloOf parses a hello.
func rankHelloOf(line, secret string) (rank int, ok bool) {
	rest, ok := strings.CutPrefix(line, rankHello+" ")
	if !ok {
		return 0, false
	}
	got, number, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(number, 10, 31)
	return int(n), ok && err == nil && subtle.ConstantTimeCompare([]byte(got), []byte(secret)) == 1
}
