package pmi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// host is a server inside rank 0, for ranks that know only their numbers.
type host struct {
	srv  *Server
	stop context.CancelFunc
	runs sync.WaitGroup
}

// drain waits until every other rank has left too.
func (h *host) drain(ctx context.Context) error {
	select {
	case <-h.srv.Idle():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pmi: wait for the other ranks to finalize: %w", context.Cause(ctx))
	}
}

func (h *host) close() {
	h.stop()
	h.runs.Wait()
}

// leaveTime is how long the ranks of a step's last program may take to leave, whose rank
// 0 still serves where the next program's is to.
const leaveTime = 20 * time.Second

// meetHere meets at a socket in a directory of the user's own: rank 0 serves.
func (c *Client) meetHere(ctx context.Context, m meeting, env environ) error {
	dir, err := meetingDir(env)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, m.key())
	if m.rank == 0 {
		ln, err := listenHere(path)
		if err != nil {
			return err
		}
		return c.hostJob(ctx, m, ln, "", env(EnvFT) != "", nil)
	}
	for until := time.Now().Add(leaveTime); ; {
		conn, err := awaitSocket(ctx, path)
		if err != nil {
			return err
		}
		err = c.introduce(ctx, conn, m.rank, "")
		if !errors.Is(err, errRefused) || time.Now().After(until) || pause(ctx, retry) != nil {
			return err
		}
	}
}

// meetingDir returns a directory that only this user can write to. Its parent
// may be everybody's, so what is there already is looked at first.
func meetingDir(env environ) (string, error) {
	parent := "/dev/shm"
	if st, err := os.Stat(parent); err != nil || !st.IsDir() {
		if parent = env("TMPDIR"); parent == "" {
			parent = "/tmp"
		}
	}
	dir := filepath.Join(parent, "meshmpi-"+itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("pmi: a place for ranks to meet: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return "", fmt.Errorf("pmi: %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int64(st.Uid) != int64(os.Getuid()) || st.Mode&0o077 != 0 {
		return "", fmt.Errorf("pmi: %s is no directory of this user's alone; have it removed", dir)
	}
	return dir, nil
}

// listenHere makes the socket. What an earlier job of the same name left there is
// dead: two live ones have different launchers. What others left whose rank 0 was killed
// goes as well.
func listenHere(path string) (net.Listener, error) {
	os.Remove(path)
	sweep(filepath.Dir(path))
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("pmi: a place for ranks to meet: %w", err)
	}
	return ln, nil
}

// sweep removes the sockets of a directory at which nobody listens any more.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir) // what stays is little
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Type() != fs.ModeSocket || time.Since(info.ModTime()) < time.Minute {
			continue // or one may be about to listen
		}
		path := filepath.Join(dir, e.Name())
		conn, err := net.Dial("unix", path)
		switch {
		case err == nil:
			conn.Close() // which rank 0 takes for a stranger
		case errors.Is(err, unix.ECONNREFUSED):
			os.Remove(path)
		}
	}
}

// hostJob serves the job at ln, which it closes, to ranks that show key, and joins
// it as rank 0. also, if not nil, runs beside the server; it ends with its context.
func (c *Client) hostJob(ctx context.Context, m meeting, ln net.Listener, key string, ft bool, also func(context.Context, *Server)) error {
	srv, err := NewServer(Config{Size: m.size, FaultTolerant: ft, Universe: m.universe, Key: key})
	if err != nil {
		ln.Close()
		return err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.host = &host{srv: srv, stop: stop}
	c.host.runs.Go(func() { srv.Serve(life, ln) }) // a socket of the host's is removed at its end
	ours, theirs := net.Pipe()
	c.host.runs.Go(func() { srv.ServeConn(life, theirs, -1) })
	if also != nil {
		c.host.runs.Go(func() { also(life, srv) })
	}
	if err := c.introduce(ctx, ours, 0, key); err != nil {
		c.host.close()
		return err
	}
	return nil
}

// patience is how long a rank waits for rank 0 where ctx sets no end.
const patience = 5 * time.Minute

// awaitSocket connects to rank 0, which may start last. Until the socket is
// there the kernel tells nobody when it comes, hence the looking again.
func awaitSocket(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pause := time.Millisecond
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EAGAIN) {
			return nil, fmt.Errorf("pmi: meet rank 0: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("pmi: rank 0 did not come to %s (%w); does it run on this host, and has it called Init?", path, context.Cause(ctx))
		case <-time.After(pause):
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}
