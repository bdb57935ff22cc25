package pmi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// worlds are the ways to a job; the same test runs on each.
func worlds() map[string]func(t *testing.T, n int) []*Client {
	return map[string]func(t *testing.T, n int) []*Client{
		"TCP":   func(t *testing.T, n int) []*Client { return serve(t, Config{Size: n, Key: "secret"}).dialAll(t) },
		"FD":    descriptors,
		"local": local,
		"meshd": atMeshd,
	}
}

// descriptors gives each rank a socket, as Hydra does.
func descriptors(t *testing.T, n int) (list []*Client) {
	j := serve(t, Config{Size: n})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, n)
	for r := range n {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
		}
		conn, err := inherited(fds[0])
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- j.srv.ServeConn(ctx, conn, r) }()
		c, err := Dial(limited(t), env("PMI_FD", itoa(fds[1]), "PMI_RANK", itoa(r), "PMI_SIZE", itoa(n)))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
		t.Cleanup(func() { c.Close() })
	}
	t.Cleanup(func() {
		cancel()
		for range n {
			if err := <-ended; err != nil {
				t.Errorf("a connection: %v", err)
			}
		}
	})
	return list
}

// openMPI is what mpirun tells a rank.
func openMPI(rank, size, here int, more ...string) environ {
	return env(append([]string{
		"OMPI_COMM_WORLD_RANK", itoa(rank), "OMPI_COMM_WORLD_SIZE", itoa(size), "OMPI_COMM_WORLD_LOCAL_SIZE", itoa(here),
		"PMIX_NAMESPACE", "17", "OMPI_MCA_orte_hnp_uri", "16.0;tcp://192.0.2.1:1",
	}, more...)...)
}

// local has ranks of one host meet.
func local(t *testing.T, n int) []*Client {
	return meet(t, n, func(r int) environ { return openMPI(r, n, n, "PMIX_SERVER_URI2", t.Name()) })
}

// meet dials all ranks, the last first.
func meet(t *testing.T, n int, of func(rank int) environ) []*Client {
	t.Helper()
	list := make([]*Client, n)
	failed := make(chan error, n)
	for r := n - 1; r >= 0; r-- {
		go func() {
			c, err := Dial(limited(t), of(r))
			list[r] = c
			failed <- err
		}()
	}
	for range n {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	for _, c := range list {
		if c == nil {
			t.FailNow()
		}
		t.Cleanup(func() { c.Close() })
	}
	return list
}

func TestJob(t *testing.T) {
	for name, world := range worlds() {
		for _, n := range []int{1, 2, 7} {
			t.Run(sprintf("%s/%d", name, n), func(t *testing.T) {
				list := world(t, n)
				value := func(r int) string { return strings.Repeat(sprintf("%d =;%%\n", r), 300) }
				each(t, list, func(c *Client) error {
					if c.Size() != n || list[c.Rank()] != c || c.JobID() == "" {
						t.Errorf("rank %d of %d in %q", c.Rank(), c.Size(), c.JobID())
					}
					for _, put := range [][2]string{{"short-" + itoa(c.Rank()), "x"}, {"long-" + itoa(c.Rank()), value(c.Rank())}} {
						if err := c.Put(put[0], put[1]); err != nil {
							return err
						}
					}
					return c.Barrier(limited(t))
				})
				each(t, list, func(c *Client) error {
					var keys, want []string
					for r := range n {
						keys = append(keys, "short-"+itoa(r), "long-"+itoa(r))
						want = append(want, "x", value(r))
					}
					got, err := c.GetAll(keys)
					if !reflect.DeepEqual(got, want) {
						t.Errorf("rank %d gets %.200q, %v", c.Rank(), got, err)
					}
					if _, err := c.Get("none"); !errors.Is(err, ErrNoKey) {
						t.Errorf("a missing key: %v", err)
					}
					if _, err := c.Get("no key"); err == nil || errors.Is(err, ErrNoKey) {
						t.Errorf("a bad key: %v", err)
					}
					if err := c.Barrier(limited(t)); err != nil {
						return err
					}
					return c.Finalize(limited(t))
				})
				for _, c := range list {
					if err := c.Put("late", "x"); !errors.Is(err, ErrClosed) {
						t.Errorf("put after finalize: %v", err)
					}
					if err := c.Close(); err != nil {
						t.Errorf("close after finalize: %v", err)
					}
				}
			})
		}
	}
}

func TestNames(t *testing.T) {
	ways := worlds()
	ways["alone"] = func(t *testing.T, _ int) []*Client {
		c, err := Dial(t.Context(), env())
		if err != nil {
			t.Fatal(err)
		}
		return []*Client{c, c}
	}
	for name, world := range ways {
		t.Run(name, func(t *testing.T) {
			list := world(t, 2)
			a, b := list[0], list[1]
			if _, err := b.Lookup("ocean model"); !errors.Is(err, ErrNoName) {
				t.Errorf("before: %v", err)
			}
			if err := a.Publish("ocean model", "p 1"); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Lookup("ocean model"); got != "p 1" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			if err := b.Publish("ocean model", "p 2"); !errors.Is(err, ErrNameTaken) {
				t.Errorf("twice: %v", err)
			}
			if err := a.Unpublish("ocean model"); err != nil {
				t.Error(err)
			}
			if err := a.Unpublish("ocean model"); !errors.Is(err, ErrNoName) {
				t.Errorf("taken back twice: %v", err)
			}
		})
	}
}

func TestAlone(t *testing.T) {
	c, err := Dial(t.Context(), env())
	if err != nil {
		t.Fatal(err)
	}
	if c.Rank() != 0 || c.Size() != 1 || c.Launcher() != "alone" {
		t.Errorf("rank %d of %d under %s", c.Rank(), c.Size(), c.Launcher())
	}
	if err := errors.Join(c.Put("a", "b c"), c.Barrier(t.Context())); err != nil {
		t.Error(err)
	}
	if got, err := c.Get("a"); got != "b c" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := c.Get("b"); !errors.Is(err, ErrNoKey) {
		t.Errorf("missing: %v", err)
	}
	if _, err := c.Spawn(t.Context(), SpawnRequest{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("spawn: %v", err)
	}
	if err := c.Finalize(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("barrier after finalize: %v", err)
	}
}

func TestDialRefuses(t *testing.T) {
	j := serve(t, Config{Size: 2, Key: "secret"})
	j.dial(t, 0)
	for name, tt := range map[string]struct {
		env  environ
		want string
	}{
		"no such descriptor": {env("PMI_FD", "1000000", "PMI_RANK", "0", "PMI_SIZE", "1"), "unset PMI_FD"},
		"no number":          {env("PMI_FD", "x", "PMI_RANK", "0", "PMI_SIZE", "1"), "PMI_FD"},
		"rank beyond size":   {env("PMI_FD", "1", "PMI_RANK", "2", "PMI_SIZE", "2"), "PMI_RANK"},
		"nobody listens":     {env("PMI_PORT", "127.0.0.1:1", "PMI_ID", "0"), "connect"},
		"no id":              {env("PMI_PORT", j.addr), "PMI_ID"},
		"wrong key":          {env("PMI_PORT", j.addr, "PMI_ID", "1", EnvKey, "guess"), "wrong key"},
		"no key":             {env("PMI_PORT", j.addr, "PMI_ID", "1"), "wrong key"},
		"rank twice":         {env("PMI_PORT", j.addr, "PMI_ID", "0", EnvKey, "secret"), "connected already"},
		"no such rank":       {env("PMI_PORT", j.addr, "PMI_ID", "2", EnvKey, "secret"), "pmiid"},
		"no meshd":           {openMPI(0, 2, 1, "MESH_STATE", t.TempDir()), "no meshd runs here"},
		"no meshd, srun":     {env("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "SLURM_STEP_ID", "0", "SLURM_STEP_NUM_NODES", "2", "MESH_STATE", t.TempDir()), "srun --mpi=pmi2"},
	} {
		c, err := Dial(limited(t), tt.env)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want a line with %q", name, err, tt.want)
		}
	}
}

func TestServerRefusesStrangers(t *testing.T) {
	j := serve(t, Config{Size: 1, Key: "secret"})
	for _, text := range []string{"GET / HTTP/1.0\r\n\r\n", "cmd=init pmi_version=1\n", "cmd=initack pmiid=x\n", strings.Repeat("x", 2*maxLine)} {
		conn, err := net.Dial("tcp", j.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, text)
		conn.(*net.TCPConn).CloseWrite()
		if got, _ := io.ReadAll(conn); strings.Contains(string(got), "cmd=set") {
			t.Errorf("%.20q is let in: %q", text, got)
		}
		conn.Close()
	}
	c := j.dial(t, 0)
	if err := c.Finalize(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(j.news); n != 0 {
		t.Errorf("%d notices", n)
	}
}

func TestBounds(t *testing.T) {
	j := serve(t, Config{Size: 1, MaxBytes: 3000})
	c := j.dial(t, 0)
	for i := range 2 {
		if err := c.Put("a", strings.Repeat("x", 1000)); err != nil { // the same key
			t.Errorf("put %d: %v", i, err)
		}
	}
	if err := c.Put("b", strings.Repeat("x", 5000)); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := c.Put("c", "x"); err == nil && j.srv.bytes > 3000 {
		t.Errorf("%d bytes are kept", j.srv.bytes)
	}
	for _, cfg := range []Config{{}, {Size: -1}, {Size: MaxSize + 1}, {Size: 2, Apps: []int{0}}, {Size: 1, JobID: "a b"}, {Size: 1, Keys: map[string]string{"a b": ""}}} {
		if _, err := NewServer(cfg); err == nil {
			t.Errorf("%+v passes", cfg)
		}
	}
}

// TestDeafRank: a rank that asks and never reads costs the server little.
func TestDeafRank(t *testing.T) {
	j := serve(t, Config{Size: 2})
	c := j.dial(t, 0)
	if err := c.Put("big", strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", j.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "cmd=initack pmiid=1\n")
	go func() { // ends with conn
		ask := newMessage("get", "kvsname", c.JobID(), "key", "big").append(nil)
		for {
			if _, err := conn.Write(ask); err != nil {
				return
			}
		}
	}()
	if got, err := c.Get("big"); len(got) != 1000 || err != nil {
		t.Errorf("the other rank gets %d bytes, %v", len(got), err)
	}
	conn.Close()
	if n := j.await(t); n != (Notice{Died, 1, 0}) {
		t.Errorf("got %v", n)
	}
}

// TestManyGets: more answers than the server queues, and than sockets hold.
func TestManyGets(t *testing.T) {
	j := serve(t, Config{Size: 1})
	c := j.dial(t, 0)
	if err := c.Put("big", strings.Repeat("x", 20000)); err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 2000)
	for i := range keys {
		keys[i] = "big"
	}
	got, err := c.GetAll(keys)
	if err != nil || len(got) != len(keys) || got[1999] != got[0] || len(got[0]) != 20000 {
		t.Errorf("got %d values, %v", len(got), err)
	}
}

// TestOldServer: a server without our extensions, line by line as Hydra's.
func TestOldServer(t *testing.T) {
	ours, theirs := net.Pipe()
	script := []struct{ ask, answer string }{
		{"cmd=initack pmiid=1", "cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n"},
		{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
		{"cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"},
		{"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1\n"},
		{"cmd=get_appnum", "cmd=appnum appnum=0\n"},
		{"cmd=get_universe_size", "cmd=universe_size size=-1\n"},
		{"cmd=put kvsname=kvs_1 key=a value=b", "cmd=put_result rc=0 msg=success\n"},
		{"cmd=get kvsname=kvs_1 key=c", "cmd=get_result rc=-1 msg=key_c_not_found value=unknown\n"},
		{"cmd=barrier_in", "cmd=barrier_out\n"},
		{"cmd=lookup_name service=s", "cmd=lookup_result info=ok port=p\n"},
		{"cmd=lookup_name service=s", "cmd=lookup_result info=notfound port=\n"},
		{"cmd=finalize", "cmd=finalize_ack\n"},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := bufio.NewReader(theirs)
		for _, step := range script {
			line, err := r.ReadString('\n')
			if strings.TrimSpace(line) != step.ask {
				t.Errorf("got %q, %v, want %q", line, err, step.ask)
			}
			io.WriteString(theirs, step.answer)
		}
	}()
	c := &Client{}
	if err := c.introduce(limited(t), ours, 1, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Put("a", "b"); err != nil {
		t.Error(err)
	}
	if _, err := c.Get("c"); !errors.Is(err, ErrNoKey) {
		t.Errorf("get: %v", err)
	}
	if err := c.Barrier(limited(t)); err != nil {
		t.Error(err)
	}
	if got, err := c.Lookup("s"); got != "p" || err != nil {
		t.Errorf("look up: %q, %v", got, err)
	}
	if _, err := c.Lookup("s"); !errors.Is(err, ErrNoName) {
		t.Errorf("look up: %v", err)
	}
	if ok, err := c.Notify(func(Notice) {}); ok || err != nil {
		t.Errorf("notices from a server that has none: %t, %v", ok, err)
	}
	if err := c.Finalize(limited(t)); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestLeftAtOnce: a rank whose Finalize has returned has left on purpose, for a launcher
// that looks at once.
func TestLeftAtOnce(t *testing.T) {
	for range 200 {
		j := serve(t, Config{Size: 2})
		for r, c := range j.dialAll(t) {
			if err := c.Finalize(limited(t)); err != nil {
				t.Fatal(err)
			}
			if came, finished := j.srv.Left(r); !came || !finished {
				t.Fatalf("rank %d came %v, left on purpose %v", r, came, finished)
			}
		}
	}
}
