package pmi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// listenTo has a client put its notices into a channel.
func listenTo(t *testing.T, c *Client) <-chan Notice {
	t.Helper()
	news := make(chan Notice, 64)
	if ok, err := c.Notify(func(n Notice) { news <- n }); !ok || err != nil {
		t.Fatalf("notify: %t, %v", ok, err)
	}
	return news
}

func next(t *testing.T, news <-chan Notice) Notice {
	t.Helper()
	select {
	case n := <-news:
		return n
	case <-limited(t).Done():
		t.Fatal("no notice comes")
		return Notice{}
	}
}

// TestDeathBreaksBarriers: those who wait when a rank dies, those who come
// later, and those who wait for a rank that has left on purpose.
func TestDeathBreaksBarriers(t *testing.T) {
	for name, leave := range map[string]func(*Client) error{
		"dies":   (*Client).Close,
		"leaves": func(c *Client) error { return c.Finalize(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			j := serve(t, Config{Size: 3})
			list := j.dialAll(t)
			waits := make(chan error, 1)
			go func() { waits <- list[0].Barrier(limited(t)) }()
			j.inside(1)
			if err := leave(list[2]); err != nil {
				t.Fatal(err)
			}
			if err := <-waits; !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "rank 2 has") {
				t.Errorf("who waits: %v", err)
			}
			if err := list[1].Barrier(limited(t)); !errors.Is(err, ErrBroken) {
				t.Errorf("who comes later: %v", err)
			}
			if name == "dies" {
				if n := j.await(t); n != (Notice{Died, 2, 0}) {
					t.Errorf("the launcher is told %v", n)
				}
			}
		})
	}
}

// TestEnd: once the launcher ends the job, nobody is told of those who are gone already,
// in a barrier, before one, or by a notice; but in a fault-tolerant job everybody is.
func TestEnd(t *testing.T) {
	j := serve(t, Config{Size: 4})
	list := j.dialAll(t)
	news := listenTo(t, list[3])
	ctx, cancel := context.WithCancel(limited(t))
	waits := make(chan error, 1)
	go func() { waits <- list[0].Barrier(ctx) }()
	j.inside(1)
	j.srv.End()
	if err := list[2].Close(); err != nil {
		t.Fatal(err)
	}
	if n := j.await(t); n != (Notice{Died, 2, 0}) {
		t.Errorf("the launcher is told %v", n)
	}
	for range 2 { // the second finds the answer to the first, if there was one
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := list[1].Barrier(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who comes later: %v", err)
		}
		cancel()
		if err := list[1].Put("k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-waits:
		t.Errorf("who waits in the barrier: %v", err)
	case n := <-news:
		t.Errorf("who asked for notices: %v", n)
	default:
	}
	cancel()
	<-waits

	j = serve(t, Config{Size: 2, FaultTolerant: true})
	list = j.dialAll(t)
	news = listenTo(t, list[0])
	j.srv.End()
	if err := list[1].Close(); err != nil {
		t.Fatal(err)
	}
	if n := next(t, news); n != (Notice{Died, 1, 0}) {
		t.Errorf("in a fault-tolerant job one is told %v", n)
	}
}

// TestFaultTolerance: the living go on, are told, and see a replacement.
func TestFaultTolerance(t *testing.T) {
	j := serve(t, Config{Size: 3, FaultTolerant: true})
	list := j.dialAll(t)
	if !list[0].FaultTolerant() {
		t.Error("the job says that it is not fault-tolerant")
	}
	news := listenTo(t, list[0])
	if err := list[2].Put("card", "old"); err != nil {
		t.Fatal(err)
	}
	if err := list[2].Publish("service", "old"); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- list[0].Barrier(limited(t)) }()
	j.srv.Died(2, 137)
	if n := next(t, news); n != (Notice{Died, 2, 137}) {
		t.Errorf("got %v", n)
	}
	if err := list[1].Barrier(limited(t)); err != nil {
		t.Errorf("who comes: %v", err)
	}
	if err := <-waits; err != nil {
		t.Errorf("who waits: %v", err)
	}
	if n := next(t, listenTo(t, list[1])); n != (Notice{Died, 2, 137}) {
		t.Errorf("who listens later is told %v", n)
	}
	if _, err := list[1].Lookup("service"); !errors.Is(err, ErrNoName) {
		t.Errorf("a dead rank's name: %v", err)
	}
	list[2].Close()

	again := j.dial(t, 2)
	if n := next(t, news); n != (Notice{Back, 2, 0}) {
		t.Errorf("got %v", n)
	}
	if err := errors.Join(again.Put("card", "new"), again.Publish("service", "new")); err != nil {
		t.Fatal(err)
	}
	if got, err := list[0].Get("card"); got != "new" || err != nil {
		t.Errorf("the replacement's card is %q, %v", got, err)
	}
	if got, err := list[0].Lookup("service"); got != "new" || err != nil {
		t.Errorf("the replacement's name is %q, %v", got, err)
	}
	all := []*Client{list[0], list[1], again}
	each(t, all, func(c *Client) error { return c.Barrier(limited(t)) })
	each(t, all, func(c *Client) error { return c.Finalize(limited(t)) })
	select {
	case <-j.srv.Idle():
	case <-limited(t).Done():
		t.Error("all have left and the server does not know")
	}
	got := []Notice{j.await(t), j.await(t)}
	if want := []Notice{{Died, 2, 137}, {Back, 2, 0}}; !slices.Equal(got, want) || len(j.news) != 0 {
		t.Errorf("the launcher is told %v and %d more, want %v", got, len(j.news), want)
	}
}

// TestNoReplacement: without fault tolerance a rank has one life.
func TestNoReplacement(t *testing.T) {
	j := serve(t, Config{Size: 2})
	j.dial(t, 1).Close()
	j.await(t)
	if _, err := Dial(limited(t), env("PMI_PORT", j.addr, "PMI_ID", "1")); err == nil || !strings.Contains(err.Error(), "has left") {
		t.Errorf("got %v", err)
	}
}

func TestAbort(t *testing.T) {
	j := serve(t, Config{Size: 2})
	list := j.dialAll(t)
	news := listenTo(t, list[0])
	if err := list[1].Abort(42); err != nil {
		t.Fatal(err)
	}
	if n := next(t, news); n != (Notice{Aborted, 1, 42}) {
		t.Errorf("a rank is told %v", n)
	}
	if n := j.await(t); n != (Notice{Aborted, 1, 42}) {
		t.Errorf("the launcher is told %v", n)
	}
	<-j.srv.Idle()
}

func TestLauncherLost(t *testing.T) {
	srv, err := NewServer(Config{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	j := &job{srv: srv}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ln, addr := listenTCP(t)
	j.addr = addr
	go func() { ended <- srv.Serve(ctx, ln) }()
	c := j.dial(t, 0)
	news := listenTo(t, c)
	waits := make(chan error, 1)
	go func() { waits <- c.Barrier(limited(t)) }()
	stop()
	if n := next(t, news); n != (Notice{Lost, -1, 0}) {
		t.Errorf("got %v", n)
	}
	if err := <-waits; !errors.Is(err, ErrLost) {
		t.Errorf("a barrier: %v", err)
	}
	if err := c.Put("a", "b"); !errors.Is(err, ErrLost) {
		t.Errorf("a put: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCallsInABarrier: a goroutine that waits in a barrier holds up no other.
func TestCallsInABarrier(t *testing.T) {
	j := serve(t, Config{Size: 2})
	list := j.dialAll(t)
	waits := make(chan error, 1)
	go func() { waits <- list[0].Barrier(limited(t)) }()
	for i := range 100 {
		if err := list[0].Put("k", itoa(i)); err != nil {
			t.Fatal(err)
		}
		if got, err := list[0].Get("k"); got != itoa(i) || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if err := list[1].Barrier(limited(t)); err != nil {
		t.Error(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

func TestBarrierGivenUp(t *testing.T) {
	j := serve(t, Config{Size: 2})
	list := j.dialAll(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := list[0].Barrier(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if err := list[1].Barrier(limited(t)); err != nil { // rank 0 is in it
		t.Error(err)
	}
}

func TestSpawn(t *testing.T) {
	want := SpawnRequest{
		Apps: []SpawnApp{
			{N: 2, Prog: "/bin/a b", Args: []string{"", "c d", "e=f"}, Info: map[string]string{"wdir": "/x y", "host": "n1"}},
			{N: 1, Prog: "c"},
		},
		Keys: map[string]string{"parent": strings.Repeat("p q", 1000), "short": "s"},
	}
	var got SpawnRequest
	refuse := false
	j := serve(t, Config{Size: 1, Spawn: func(_ context.Context, r SpawnRequest) ([]int, error) {
		got = r
		if refuse {
			return nil, errors.New("no room for 3 ranks")
		}
		return []int{0, 0, 3}, nil
	}})
	c := j.dial(t, 0)
	codes, err := c.Spawn(limited(t), want)
	if err != nil || !slices.Equal(codes, []int{0, 0, 3}) {
		t.Errorf("got %v, %v", codes, err)
	}
	if !sameSpawn(got, want) {
		t.Errorf("the launcher gets %.300v, want %.300v", got, want)
	}
	refuse = true
	if _, err := c.Spawn(limited(t), want); err == nil || !strings.Contains(err.Error(), "no room for 3 ranks") {
		t.Errorf("refused: %v", err)
	}
	for name, bad := range map[string]SpawnRequest{
		"nothing":   {},
		"no ranks":  {Apps: []SpawnApp{{Prog: "a"}}},
		"no name":   {Apps: []SpawnApp{{N: 1}}},
		"new line":  {Apps: []SpawnApp{{N: 1, Prog: "a", Args: []string{"b\nendcmd"}}}},
		"bad key":   {Apps: []SpawnApp{{N: 1, Prog: "a"}}, Keys: map[string]string{"a b": "c"}},
		"long args": {Apps: []SpawnApp{{N: 1, Prog: "a", Args: []string{strings.Repeat("x", maxLine)}}}},
	} {
		if _, err := c.Spawn(limited(t), bad); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if err := c.Put("still", "alive"); err != nil {
		t.Error(err)
	}
	other := serve(t, Config{Size: 1}).dial(t, 0)
	if _, err := other.Spawn(limited(t), want); err == nil || !strings.Contains(err.Error(), "no further jobs") {
		t.Errorf("a launcher that starts none: %v", err)
	}
}

// TestSpawnsBeside: jobs are asked for at the same time, answered as they start and
// withdrawn by themselves, and other commands go on meanwhile.
func TestSpawnsBeside(t *testing.T) {
	begun, withdrawn, joins := make(chan string, 3), make(chan string, 3), make(chan bool, 3)
	release := make(chan error)
	j := serve(t, Config{Size: 1, Spawn: func(ctx context.Context, r SpawnRequest) ([]int, error) {
		joins <- r.Joins
		begun <- r.Apps[0].Prog
		select {
		case err := <-release:
			return []int{0}, err
		case <-ctx.Done():
			withdrawn <- r.Apps[0].Prog
			return nil, ctx.Err()
		}
	}})
	c := j.dial(t, 0)
	start := func(ctx context.Context, prog string, joins bool) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := c.Spawn(ctx, SpawnRequest{Apps: []SpawnApp{{N: 1, Prog: prog}}, Joins: joins})
			ended <- err
		}()
		if got := <-begun; got != prog {
			t.Errorf("%s starts where %s should", got, prog)
		}
		return ended
	}
	ctx, cancel := context.WithCancel(limited(t))
	first, second, third := start(ctx, "first", true), start(limited(t), "second", false), start(limited(t), "third", true)
	if a, b, c := <-joins, <-joins, <-joins; !a || b || !c {
		t.Errorf("those that join are %t, %t, %t", a, b, c)
	}
	if err := c.Put("key", "value"); err != nil {
		t.Errorf("a command beside them: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("a job that is withdrawn ends with %v", err)
	}
	if got := <-withdrawn; got != "first" {
		t.Errorf("%s is withdrawn", got)
	}
	release <- nil
	var err error
	select { // either of them
	case err = <-second:
		second = third
	case err = <-third:
	}
	if err != nil {
		t.Errorf("a job that has started: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-second; !errors.Is(err, ErrClosed) {
		t.Errorf("a job whose asker has gone: %v", err)
	}
	<-withdrawn
}

func TestJoined(t *testing.T) {
	told := make(chan error, 2)
	c := serve(t, Config{Size: 1, Spawned: true, Joined: func(err error) { told <- err }}).dial(t, 0)
	if err := c.Joined(nil); err != nil || <-told != nil {
		t.Errorf("a job that has joined: %v", err)
	}
	if err := c.Joined(errors.New("no reason = none")); err != nil {
		t.Error(err)
	}
	if err := <-told; err == nil || err.Error() != "no reason = none" {
		t.Errorf("a job that has not: %v", err)
	}
}
