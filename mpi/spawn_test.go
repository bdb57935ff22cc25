package mpi_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// asked is the launcher of a job of one rank, whose answers are the test's.
type asked struct {
	*pmi.Client
	spawn  func(ctx context.Context, req pmi.SpawnRequest) error
	joined func(error)
}

func (a *asked) Spawn(ctx context.Context, req pmi.SpawnRequest) ([]int, error) {
	return []int{0}, a.spawn(ctx, req)
}

func (a *asked) Joined(err error) error {
	a.joined(err)
	return nil
}

// single starts a job of one rank, which the test ends.
func single(t *testing.T, a *asked, keys map[string]string) (*mpi.World, error) {
	t.Helper()
	srv, err := pmi.NewServer(pmi.Config{Size: 1, Spawned: keys != nil, Keys: keys})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	env := map[string]string{"PMI_PORT": ln.Addr().String(), "PMI_ID": "0"}
	if keys != nil {
		env["PMI_SPAWNED"] = "1"
	}
	if a.Client, err = pmi.Dial(ctx, func(name string) string { return env[name] }); err != nil {
		return nil, err
	}
	t.Cleanup(func() { a.Client.Close() })
	w, err := mpi.Init(ctx, mpi.WithLauncher(a), mpi.WithoutSharedMemory())
	if err == nil {
		t.Cleanup(w.Crash)
	}
	return w, err
}

// TestSpawnLost: a job that ends when it has met who spawns it, and before the launcher
// counts it as started, is a failure of Spawn's.
func TestSpawnLost(t *testing.T) {
	parent := &asked{}
	w, err := single(t, parent, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan error, 1)
	parent.spawn = func(_ context.Context, req pmi.SpawnRequest) error {
		met := make(chan error, 1)
		go func() {
			_, err := single(t, &asked{joined: func(err error) { met <- err }}, req.Keys)
			begun <- err
		}()
		if err := <-met; err != nil {
			t.Errorf("the child: %v", err)
		}
		return errors.New("its node is lost")
	}
	x, err := w.Comm().Spawn(0, mpi.Program{N: 1, Path: "child"})
	if !errors.Is(err, mpi.ErrSpawn) || !strings.Contains(err.Error(), "its node is lost") {
		t.Errorf("got %v, %v", x, err)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}

// TestSpawnWithdrawn: when a Spawn ends with its context the launcher is told.
func TestSpawnWithdrawn(t *testing.T) {
	parent, told := &asked{}, make(chan error, 1)
	w, err := single(t, parent, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Comm().Dup()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	parent.spawn = func(spawn context.Context, _ pmi.SpawnRequest) error {
		cancel()
		<-spawn.Done()
		told <- spawn.Err()
		return spawn.Err()
	}
	if _, err := d.WithContext(ctx).Spawn(0, mpi.Program{N: 1, Path: "child"}); !errors.Is(err, context.Canceled) || !errors.Is(err, mpi.ErrRevoked) {
		t.Errorf("got %v", err)
	}
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Error("the launcher goes on")
	}
}
