package pmi

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Client is a rank's view of its job. Its methods may be called from any
// goroutine, also while another waits in Barrier; all but Rank and its like
// fail with ErrClosed after Finalize or Close. A rank that runs alone has one
// without a launcher behind it, which keeps keys and names to itself.
type Client struct {
	rank, size int
	jobid      string
	appnum     int
	universe   int // 0: not known
	spawned    bool
	launcher   string
	keyMax     int
	valueMax   int
	mesh, ft   bool // the server has our extensions; deaths do not end the job
	joins      bool // it has those for jobs that are spawned

	place place // if a meshd was asked

	w    *wire // nil: alone
	host *host // rank 0 of a job that meets at it; else nil

	mu     sync.Mutex // guards what follows
	closed bool
	kvs    map[string]string // of a rank alone
	names  map[string]string
	spawns int // number of the last
}

// callTime bounds how long a launcher may take over what waits for nobody else.
const callTime = 2 * time.Minute

// Rank returns the caller's number in its job.
func (c *Client) Rank() int { return c.rank }

// Size returns the number of ranks in the job.
func (c *Client) Size() int { return c.size }

// JobID returns what tells the job from others of its launcher.
func (c *Client) JobID() string { return c.jobid }

// Appnum returns the index of the rank's program in the job's command line.
func (c *Client) Appnum() int { return c.appnum }

// UniverseSize returns how many ranks the launcher has room for; 0: not known.
func (c *Client) UniverseSize() int { return c.universe }

// Spawned reports whether another job's Spawn started this one.
func (c *Client) Spawned() bool { return c.spawned }

// FaultTolerant reports whether the job goes on when a rank dies, so that it is
// worth while to ask Notify.
func (c *Client) FaultTolerant() bool { return c.ft }

// Launcher says how the job was started, for people: "PMI", "Open MPI",
// "Slurm", "alone".
func (c *Client) Launcher() string { return c.launcher }

// Place returns the name of the process's node, its site, and its virtual address,
// where a meshd has been asked for them: under launchers that hand each rank the
// variables of the node that they themselves run on, or none. Otherwise all are
// empty.
func (c *Client) Place() (node, site, addr string) {
	return c.place.Node, c.place.Site, c.place.Addr
}

// Put stores a value of at most 64 KiB under a key of at most 60 bytes. The
// others are sure to see it after the next Barrier. A launcher of others takes
// a key only once.
func (c *Client) Put(key, value string) error {
	if err := checkKey(key, c.keyMax); err != nil {
		return err
	}
	parts, err := pieces(value, c.valueMax)
	if err != nil {
		return err
	}
	if c.w == nil {
		return c.alone(func() { c.kvs[key] = value })
	}
	for i := len(parts) - 1; i >= 0; i-- { // the head last: who sees it finds the rest
		m := newMessage("put", "kvsname", c.jobid, "key", pieceKey(key, i), "value", parts[i])
		if _, err := c.ask(m, "put_result"); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the value of a key, or ErrNoKey.
func (c *Client) Get(key string) (string, error) {
	list, err := c.GetAll([]string{key})
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// GetAll returns the values of many keys, without waiting for one before it
// asks for the next where the launcher is ours. A key that is missing is an
// error, ErrNoKey.
func (c *Client) GetAll(keys []string) ([]string, error) {
	for _, k := range keys {
		if err := checkKey(k, c.keyMax); err != nil {
			return nil, err
		}
	}
	values := make([]string, len(keys))
	if c.w == nil {
		var missing error
		err := c.alone(func() {
			for i, k := range keys {
				v, ok := c.kvs[k]
				if values[i] = v; !ok && missing == nil {
					missing = fmt.Errorf("pmi: get %s: %w", k, ErrNoKey)
				}
			}
		})
		if err == nil {
			err = missing
		}
		return values, err
	}
	heads, err := c.fetch(keys)
	if err != nil {
		return nil, err
	}
	for i, head := range heads {
		text, more, err := parseHead(head)
		if err != nil {
			return nil, fmt.Errorf("pmi: get %s: %w", keys[i], err)
		}
		rest := make([]string, more)
		for j := range rest {
			rest[j] = pieceKey(keys[i], j+1)
		}
		if rest, err = c.fetch(rest); err != nil {
			return nil, err
		}
		values[i] = unescape(text + strings.Join(rest, ""))
	}
	return values, nil
}

// ahead is how many gets may be under way.
const ahead = 256

// fetch gets raw values.
func (c *Client) fetch(keys []string) ([]string, error) {
	window := 1
	if c.mesh {
		window = ahead
	}
	values := make([]string, 0, len(keys))
	var asked []<-chan message
	deadline, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	for len(values) < len(keys) {
		for len(asked) < window && len(values)+len(asked) < len(keys) {
			answer, err := c.w.send([]message{newMessage("get", "kvsname", c.jobid, "key", keys[len(values)+len(asked)])}, "get_result")
			if err != nil {
				return nil, err
			}
			asked = append(asked, answer)
		}
		m, err := c.w.await(deadline, asked[0])
		if err != nil {
			return nil, err
		}
		asked = asked[1:]
		if _, failed := m.failed(); failed {
			return nil, fmt.Errorf("pmi: get %s: %w", keys[len(values)], ErrNoKey)
		}
		values = append(values, m.get("value"))
	}
	return values, nil
}

// Barrier waits until all ranks of the job are in it. It fails with ErrBroken
// when they cannot all come; in a fault-tolerant job the living are enough. A
// caller whose ctx has ended is in it all the same and may not enter again.
func (c *Client) Barrier(ctx context.Context) error {
	if c.w == nil {
		return c.alone(func() {})
	}
	m, err := c.w.call(ctx, "barrier_out", newMessage("barrier_in"))
	if err != nil {
		return err
	}
	if why, failed := m.failed(); failed {
		return fmt.Errorf("pmi: barrier: %w: %s", ErrBroken, why)
	}
	return nil
}

// Publish makes a port known under a name of the service (MPI 4.1 §11.4.4), to
// all jobs of this launcher. It fails with ErrNameTaken if another living rank
// holds the name.
func (c *Client) Publish(name, port string) error {
	if err := checkService(name, port); err != nil {
		return err
	}
	if c.w == nil {
		taken := false
		err := c.alone(func() {
			if _, taken = c.names[name]; !taken {
				c.names[name] = port
			}
		})
		if taken && err == nil {
			err = fmt.Errorf("pmi: publish %s: %w", name, ErrNameTaken)
		}
		return err
	}
	m, err := c.exchange(newMessage("publish_name", "service", escape(name), "port", escape(port)), "publish_result")
	if err == nil && badName(m) {
		err = fmt.Errorf("pmi: publish %s: %w", name, ErrNameTaken)
	}
	return err
}

// Lookup returns the port that was published under a name, or ErrNoName.
func (c *Client) Lookup(name string) (port string, err error) {
	if err := checkService(name, "?"); err != nil {
		return "", err
	}
	if c.w == nil {
		ok := false
		if err := c.alone(func() { port, ok = c.names[name] }); err != nil {
			return "", err
		}
		if !ok {
			return "", fmt.Errorf("pmi: look up %s: %w", name, ErrNoName)
		}
		return port, nil
	}
	m, err := c.exchange(newMessage("lookup_name", "service", escape(name)), "lookup_result")
	if err != nil {
		return "", err
	}
	if text, ok := m.lookup("port"); ok && !badName(m) {
		return unescape(text), nil
	}
	return "", fmt.Errorf("pmi: look up %s: %w", name, ErrNoName)
}

// Unpublish takes a name back, or fails with ErrNoName.
func (c *Client) Unpublish(name string) error {
	if err := checkService(name, "?"); err != nil {
		return err
	}
	missing := false
	if c.w == nil {
		if err := c.alone(func() {
			_, ok := c.names[name]
			missing = !ok
			delete(c.names, name)
		}); err != nil {
			return err
		}
	} else {
		m, err := c.exchange(newMessage("unpublish_name", "service", escape(name)), "unpublish_result")
		if err != nil {
			return err
		}
		missing = badName(m)
	}
	if missing {
		return fmt.Errorf("pmi: unpublish %s: %w", name, ErrNoName)
	}
	return nil
}

// badName reads the answer about a name: MPICH's own servers say info=ok, or rc.
func badName(m message) bool {
	info, ok := m.lookup("info")
	_, failed := m.failed()
	return failed || ok && info != "ok"
}

func checkService(name, port string) error {
	if name == "" || len(escape(name)) > maxName || port == "" || len(escape(port)) > maxChunk {
		return fmt.Errorf("pmi: service %.40q: a name has 1 to %d bytes, a port 1 to %d", name, maxName, maxChunk)
	}
	return nil
}

// Spawn has the launcher start another job, and returns an exit code of the
// start for each rank (all 0 from launchers that start all or nothing). When ctx ends
// a launcher of ours ends the job, unless that has begun; another's starts it.
func (c *Client) Spawn(ctx context.Context, req SpawnRequest) (codes []int, err error) {
	if c.w == nil {
		return nil, fmt.Errorf("pmi: spawn: %w to a program that runs alone: start it with meshrun or mpiexec", ErrUnsupported)
	}
	list, err := req.messages(c.valueMax)
	if err != nil {
		return nil, err
	}
	answer, id := "spawn_result", ""
	if c.joins {
		id = itoa(c.nextSpawn())
		answer = numbered(answer, id)
		if list[0] = list[0].with("mesh_id", id); req.Joins {
			list[0] = list[0].with("mesh_joins", "1")
		}
	}
	m, err := c.w.call(ctx, answer, list...)
	if err != nil {
		if c.joins && ctx.Err() != nil {
			_ = c.w.say(newMessage("mesh_withdraw", "mesh_id", id)) // otherwise it ends with us
		}
		return nil, err
	}
	if why, failed := m.failed(); failed {
		return nil, fmt.Errorf("pmi: spawn: the launcher says: %s", why)
	}
	codes = make([]int, req.Ranks())
	for i, text := range strings.Split(m.get("errcodes"), ",") {
		if n, err := strconv.Atoi(text); err == nil && i < len(codes) {
			codes[i] = n
		}
	}
	return codes, nil
}

func (c *Client) nextSpawn() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spawns = c.spawns%maxSpawnID + 1
	return c.spawns
}

// Joined tells a launcher of ours, from a job that was spawned, that this has met who
// spawned it (SpawnRequest.Joins), or why it has not: then the launcher ends the job,
// which is no failure of the one that it belongs to.
func (c *Client) Joined(err error) error {
	if c.w == nil || !c.joins {
		return nil
	}
	why := ""
	if err != nil {
		why = cmp.Or(word(err.Error()), "failed")
	}
	_, err = c.ask(verdict("mesh_joined", why), "mesh_joined_ack")
	return err
}
