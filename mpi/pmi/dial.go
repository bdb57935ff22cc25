package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Variables by which a launcher of ours speaks to its ranks, besides PMI_PORT
// and PMI_ID.
const (
	EnvKey  = "MESH_PMI_KEY" // shows the server that a rank belongs to the job
	EnvFT   = "MESH_FT"      // not empty: ranks that meet do not break the job when they die
	envFD   = "PMI_FD"
	envPort = "PMI_PORT"
)

// source is one way to learn of a job: a launcher's variables, and how to reach
// its server. It says first whether the variables are there.
type source struct {
	launcher string
	dial     func(ctx context.Context, env environ) (c *Client, found bool, err error)
}

// sources are tried in order: another launcher is a function and a row. Slurm's
// pmi2 plugin speaks PMI-1 and is the first of them; Open MPI comes before Slurm
// because its mpirun may run inside an allocation.
func sources() []source {
	return []source{
		{"PMI", dialFD},
		{"PMI", dialPort},
		{"Open MPI", dialOpenMPI},
		{"Slurm", dialSlurm},
	}
}

// environ looks variables up.
type environ func(string) string

// Dial connects the calling process to its job, as the environment says; a nil
// env is os.Getenv. ctx bounds the connecting, a meeting of all ranks included.
// Where no launcher is to be seen the process is a job of one rank. It takes a
// descriptor that it inherited for itself, so a process calls it once.
func Dial(ctx context.Context, env func(string) string) (*Client, error) {
	if env == nil {
		env = os.Getenv
	}
	for _, s := range sources() {
		c, found, err := s.dial(ctx, env)
		if err != nil {
			return nil, err
		}
		if found {
			c.launcher = s.launcher
			return c, nil
		}
	}
	return &Client{
		size: 1, jobid: "alone", launcher: "alone", keyMax: maxKey, valueMax: maxChunk,
		kvs: map[string]string{}, names: map[string]string{},
	}, nil
}

// number reads a variable that holds a number within bounds.
func (env environ) number(name string, least, most int) (int, error) {
	n, err := strconv.Atoi(env(name))
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("pmi: the variable %s is %.40q, not a number from %d to %d", name, env(name), least, most)
	}
	return n, nil
}

// place reads the variables that hold a rank and the number of ranks.
func (env environ) place(rankVar, sizeVar string) (rank, size int, err error) {
	if size, err = env.number(sizeVar, 1, MaxSize); err != nil {
		return 0, 0, err
	}
	rank, err = env.number(rankVar, 0, size-1)
	return rank, size, err
}

// dialFD takes the connection that Hydra and Slurm leave open.
func dialFD(ctx context.Context, env environ) (*Client, bool, error) {
	if env(envFD) == "" {
		return nil, false, nil
	}
	fd, err := env.number(envFD, 0, 1<<30)
	if err != nil {
		return nil, false, err
	}
	rank, size, err := env.place("PMI_RANK", "PMI_SIZE")
	if err != nil {
		return nil, false, err
	}
	conn, err := inherited(fd)
	if err != nil {
		return nil, false, fmt.Errorf("pmi: %s=%d is no connection to a launcher (%w); a program that a rank started is no rank: unset %s to run it alone", envFD, fd, err, envFD)
	}
	c := &Client{rank: rank, size: size, spawned: env("PMI_SPAWNED") != ""}
	return c, true, c.begin(ctx, conn, bufio.NewReader(conn))
}

// inherited makes a connection of a descriptor that is a socket or a pipe.
func inherited(fd int) (net.Conn, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, syscall.ENOTSOCK
	}
	f := os.NewFile(uintptr(fd), "pmi")
	defer f.Close() // conn is a duplicate
	return net.FileConn(f)
}

// dialPort connects to the address that Hydra's -pmi-port and meshrun give.
func dialPort(ctx context.Context, env environ) (*Client, bool, error) {
	addr := env(envPort)
	if addr == "" {
		return nil, false, nil
	}
	id, err := env.number("PMI_ID", 0, MaxSize-1)
	if err != nil {
		return nil, false, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, false, fmt.Errorf("pmi: connect to the launcher: %w", err)
	}
	c := &Client{spawned: env("PMI_SPAWNED") != ""}
	return c, true, c.introduce(ctx, conn, id, env(EnvKey))
}

// introduce is begin on a connection that the rank made itself: the server asks
// who it is and says how many there are.
func (c *Client) introduce(ctx context.Context, conn net.Conn, id int, key string) error {
	hello := newMessage("initack", "pmiid", itoa(id))
	if key != "" {
		hello = hello.with("mesh_key", key)
	}
	r := bufio.NewReader(conn)
	stop := limitTo(ctx, conn)
	err := c.introduced(conn, r, hello)
	if stop(); err != nil {
		conn.Close()
		return fmt.Errorf("pmi: introduce rank %d to the launcher: %w", id, preferCause(ctx, err))
	}
	return c.begin(ctx, conn, r)
}

func (c *Client) introduced(conn net.Conn, r *bufio.Reader, hello message) error {
	if _, err := conn.Write(hello.append(nil)); err != nil {
		return err
	}
	ack, err := readMessage(r)
	if err != nil {
		return cutOff(err)
	}
	if why, failed := ack.failed(); failed || ack.cmd != "initack" {
		return fmt.Errorf("%w: it answers %s %s", errRefused, ack.cmd, why)
	}
	c.size, c.rank = 0, -1
	for range 3 { // size, rank and debug
		m, err := readMessage(r)
		if err != nil {
			return cutOff(err)
		}
		if _, ok := m.lookup("size"); ok {
			c.size, err = m.number("size", 1, MaxSize)
		}
		if _, ok := m.lookup("rank"); ok {
			c.rank, err = m.number("rank", 0, MaxSize-1)
		}
		if err != nil {
			return err
		}
	}
	if c.rank < 0 || c.rank >= c.size {
		return fmt.Errorf("it says rank %d of %d: %w", c.rank, c.size, errLine)
	}
	return nil
}

// errRefused: the server is another's, or the rank is not one of its.
var errRefused = errors.New("refused")

// limitTo has ctx end reads and writes on conn, until the returned function is
// called.
func limitTo(ctx context.Context, conn net.Conn) (stop func()) {
	release := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if release() {
			conn.SetDeadline(time.Time{})
		}
	}
}

// preferCause returns why ctx ended, if it did, for err that came of it.
func preferCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// begin asks the server what every rank wants to know.
func (c *Client) begin(ctx context.Context, conn net.Conn, r *bufio.Reader) (err error) {
	c.w = newWire(conn, r)
	defer func() {
		if err != nil {
			c.w.close()
		}
	}()
	m, err := c.w.call(ctx, "response_to_init", newMessage("init", "pmi_version", "1", "pmi_subversion", "1"))
	if err != nil {
		return err
	}
	if why, failed := m.failed(); failed {
		return fmt.Errorf("pmi: the launcher speaks no PMI-1: %s", why)
	}
	c.mesh, c.ft = m.get("mesh") == "1", m.get("ft") == "1"
	c.joins = c.mesh && m.get("joins") == "1"
	if m, err = c.w.call(ctx, "maxes", newMessage("get_maxes")); err != nil {
		return err
	}
	if c.keyMax, err = m.number("keylen_max", 8, 1<<20); err != nil {
		return err
	}
	if c.valueMax, err = m.number("vallen_max", 64, 1<<20); err != nil {
		return err
	}
	c.keyMax, c.valueMax = min(c.keyMax, maxKey), min(c.valueMax, maxChunk)
	if m, err = c.w.call(ctx, "my_kvsname", newMessage("get_my_kvsname")); err != nil {
		return err
	}
	if c.jobid = m.get("kvsname"); c.jobid == "" || len(c.jobid) > maxName {
		return fmt.Errorf("pmi: the launcher's name for the job is %.40q: %w", c.jobid, errLine)
	}
	if m, err = c.w.call(ctx, "appnum", newMessage("get_appnum")); err != nil {
		return err
	}
	c.appnum, _ = m.number("appnum", 0, MaxSize) // some say -1 where there is one program
	if m, err = c.w.call(ctx, "universe_size", newMessage("get_universe_size")); err != nil {
		return err
	}
	c.universe, _ = m.number("size", 1, 1<<30) // -1: not known
	return nil
}
