package pmi

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
)

// TestNextProgram: a rank that is done with a step's first program finds the second's rank
// 0 although the first's still serves others.
func TestNextProgram(t *testing.T) {
	env := func(rank string) environ {
		m := map[string]string{"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "next" + itoa(os.Getpid()), "SLURM_STEP_NUM_NODES": "1"}
		return func(s string) string { return m[s] }
	}
	ctx := t.Context()
	var cs [3]*Client
	for r := range cs {
		c, err := Dial(ctx, env(itoa(r)))
		if err != nil {
			t.Fatal(err)
		}
		cs[r] = c
	}
	if err := cs[1].Finalize(ctx); err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		c, err := Dial(ctx, env("1"))
		if err == nil {
			c.Close()
		}
		next <- err
	}()
	srv := cs[0].host.srv
	eventually.Holds(t, "the first program's rank 0 refuses it", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return srv.came > uint64(len(cs)) && len(srv.sessions) == len(cs)-1
	})
	for _, r := range []int{2, 0} {
		if err := cs[r].Finalize(ctx); err != nil {
			t.Error(err)
		}
	}
	c, err := Dial(ctx, env("0"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// TestSpawnMany: what is said of thousands of ranks that all start fits a line.
func TestSpawnMany(t *testing.T) {
	srv, err := NewServer(Config{Size: 1, Spawn: func(_ context.Context, r SpawnRequest) ([]int, error) { return make([]int, r.Ranks()), nil }})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- srv.Serve(ctx, ln) }()
	defer func() { cancel(); <-served }()
	env := map[string]string{"PMI_PORT": ln.Addr().String(), "PMI_ID": "0"}
	c, err := Dial(ctx, func(s string) string { return env[s] })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if codes, err := c.Spawn(ctx, SpawnRequest{Apps: []SpawnApp{{N: 9000, Prog: "x"}}}); err != nil || len(codes) != 9000 {
		t.Errorf("%d codes, %v", len(codes), err)
	}
}

// TestServeEnds: who says nothing does not hold up a server that ends as it comes.
func TestServeEnds(t *testing.T) {
	srv, err := NewServer(Config{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		a, b := net.Pipe()
		done := make(chan struct{})
		go func() { _ = srv.ServeConn(ctx, b, -1); close(done) }()
		cancel()
		select {
		case <-done:
		case <-time.After(helloTime / 4):
			t.Fatal("it waits")
		}
		a.Close()
	}
}

// TestNamesFull: who has a name may change what it stands for, however many there are.
func TestNamesFull(t *testing.T) {
	n, s := NewNames(), &Server{}
	for i := range maxNames {
		n.publish(s, 0, "n"+itoa(i), "p")
	}
	if why := n.publish(s, 0, "n0", "q"); why != "" {
		t.Errorf("a name anew: %s", why)
	}
	if why := n.publish(s, 0, "one more", "q"); why == "" {
		t.Error("there is room for one more")
	}
}
