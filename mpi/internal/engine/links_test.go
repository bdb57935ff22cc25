package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// valves are connections that a test may stall or break. The i-th that was dialed
// is the link of that number.
type valves struct {
	mu    sync.Mutex // guards conns
	conns []*valve
}

// valve is a connection that passes bytes as long as it is open.
type valve struct {
	net.Conn
	limit atomic.Int64 // bytes that may still be written; none: wait for ever
	fuse  atomic.Int64 // bytes that may still pass, either way; then the connection is reset
	wrote atomic.Int64
	shut  chan struct{}
	once  sync.Once
}

func (v *valves) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w := &valve{Conn: nc, shut: make(chan struct{})}
	w.limit.Store(1 << 60)
	w.fuse.Store(1 << 60)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conns = append(v.conns, w)
	return w, nil
}

func (v *valves) at(i int) *valve {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.conns[i]
}

func (v *valve) Write(b []byte) (int, error) {
	if v.limit.Add(-int64(len(b))) < 0 {
		<-v.shut
		return 0, io.ErrClosedPipe
	}
	b, burnt := v.burn(b)
	n, err := v.Conn.Write(b)
	v.wrote.Add(int64(n))
	if burnt {
		v.reset()
		return n, io.ErrClosedPipe
	}
	return n, err
}

func (v *valve) Read(b []byte) (int, error) {
	n, err := v.Conn.Read(b)
	if _, burnt := v.burn(b[:n]); burnt {
		v.reset()
	}
	return n, err
}

// burn returns as much of b as may pass, and whether that was all that ever may.
func (v *valve) burn(b []byte) ([]byte, bool) {
	left := v.fuse.Add(-int64(len(b)))
	if left > 0 {
		return b, false
	}
	return b[:max(0, int64(len(b))+left)], true
}

// reset ends the connection at once: what is under way is lost.
func (v *valve) reset() {
	if t, ok := v.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	v.Close()
}

func (v *valve) Close() error {
	v.once.Do(func() { close(v.shut) })
	return v.Conn.Close()
}

// SetDeadline ends what waits as well: engines set one when they close.
func (v *valve) SetDeadline(t time.Time) error {
	if !t.IsZero() && v.limit.Load() < 0 {
		v.once.Do(func() { close(v.shut) })
	}
	return v.Conn.SetDeadline(t)
}

// linked makes two engines with so many links, which 0 has dialed by valves.
func linked(t *testing.T, links int, adapt ...func(*Config)) ([]*Engine, *valves) {
	v := &valves{}
	es := processes(func(c *Config) {
		c.Links = links
		if c.Self == 0 {
			c.Dial = v.dial
		}
	})(t, 2, adapt...)
	send(t, es[0], 1, 1<<20, nil) // so that it is 0 who dials
	recv(t, es[1], 0, 1<<20, 0)
	return es, v
}

// tagOn returns a tag whose messages take a link, from a number on.
func tagOn(e *Engine, link int, from int32) int32 {
	tag := from
	e.Do(func(*Op) {
		p := e.peers[1]
		for p.rail(world, tag) != p.conns[link] {
			tag++
		}
	})
	return tag
}

// TestStalledLink stalls one of three links for ever: messages of tags that take
// others arrive, small ones and large, more than there is credit for, in whatever
// way they are received.
func TestStalledLink(t *testing.T) {
	es, v := linked(t, 3)
	stuck, b, c := tagOn(es[0], 1, 0), tagOn(es[0], 0, 0), tagOn(es[0], 2, 0)
	v.at(1).limit.Store(0)
	const many = 3000
	for i := range many { // far more than its credit
		isend(t, es[0], 1, stuck, pattern(1000, i))
	}
	for i := range many {
		for _, tag := range []int32{b, c} {
			out := isend(t, es[0], 1, tag, pattern(1000, i))
			if got, _ := recv(t, es[1], 0, tag, 1000); !bytes.Equal(got, pattern(1000, i)) {
				t.Fatalf("message %d of tag %d: other contents", i, tag)
			}
			wait(t, es[0], out)
		}
	}
	for _, tag := range []int32{b, c} { // and the other way
		send(t, es[1], 0, tag, pattern(10, 1))
		recv(t, es[0], 1, tag, 10)
	}
	for i := range 3 * many { // nobody asks for these yet: they take all credit of their links
		isend(t, es[0], 1, b, pattern(10, i))
	}
	for i := range 3 * many {
		if got, _ := recv(t, es[1], AnyProc, b, 10); !bytes.Equal(got, pattern(10, i)) {
			t.Fatalf("message %d: other contents", i)
		}
	}
	// What takes any tag waits for what was sent first, which is stuck.
	before, wild := irecv(t, es[1], 0, c, make([]byte, 1000)), irecv(t, es[1], 0, AnyTag, make([]byte, 1000))
	for range 2 {
		send(t, es[0], 1, c, pattern(1000, 1))
	}
	wait(t, es[1], before)
	for early := false; !early; es[1].Poll() { // until the second has come as well
		es[1].Do(func(*Op) {
			early = es[1].contexts[world].early.last != nil && es[1].contexts[world].early.last.tag == c
		})
	}
	if _, done, _ := es[1].Test(wild); done {
		t.Error("a receive of any tag was given a message that was sent later")
	}
	crash(t, es)
}

// TestProbeEarly: a probe sees the announcement of a message that has overtaken others,
// of which another link keeps the first back.
func TestProbeEarly(t *testing.T) {
	es, v := linked(t, 2)
	stuck, free := tagOn(es[0], 0, 0), tagOn(es[0], 1, 0)
	v.at(0).limit.Store(0)
	isend(t, es[0], 1, stuck, pattern(1000, 1))
	found := make(chan error, 1)
	go func() {
		st, err := es[1].Probe(0, world, free)
		if err == nil && st.Tag != free {
			err = fmt.Errorf("a message of tag %d", st.Tag)
		}
		found <- err
	}()
	time.Sleep(20 * time.Millisecond) // or it finds it there, which is right as well
	isend(t, es[0], 1, free, pattern(1<<20, 2))
	select {
	case err := <-found:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it has not woken")
	}
	crash(t, es)
}

// crash ends engines without waiting for what cannot be delivered.
func crash(t *testing.T, es []*Engine) {
	t.Helper()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	each(es, func(_ int, e *Engine) {
		if err := e.Close(over); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
}

// TestStripeShares sends large messages over links of which one takes nothing after
// a while: the others carry what is left. Judged by what went over each.
func TestStripeShares(t *testing.T) {
	es, v := linked(t, 2)
	const n = 4 << 20
	for k := range 8 {
		in := irecv(t, es[1], 0, 1, make([]byte, n))
		send(t, es[0], 1, 1, pattern(n, k))
		wait(t, es[1], in)
	}
	a, b := v.at(0).wrote.Load(), v.at(1).wrote.Load()
	if min(a, b) < (a+b)/10 {
		t.Errorf("of %d bytes one link carried %d", a+b, min(a, b))
	}
	for under := 1; under > 0; { // all is acknowledged in the end
		es[0].Poll()
		es[0].Do(func(*Op) {
			under = 0
			for _, c := range es[0].peers[1].conns {
				under += c.gauge.under
			}
		})
	}
}

// TestRails gives both sides two addresses: the first is connected to the first, the
// second to the second.
func TestRails(t *testing.T) {
	two := []string{"127.0.0.2", "127.0.0.3"}
	es := processes(func(c *Config) { c.Addresses = two })(t, 2)
	const n = 1 << 20
	in := irecv(t, es[1], 0, 1, make([]byte, n))
	send(t, es[0], 1, 1, pattern(n, 0))
	wait(t, es[1], in)
	for i, e := range es {
		e.Do(func(*Op) {
			p := e.peers[1-i]
			if len(p.conns) != 2 {
				t.Fatalf("%d has %d links, want 2", i, len(p.conns))
			}
			for k, c := range p.conns {
				ours, theirs := endsOf(t, c)
				if ours != two[k] || theirs != two[k] {
					t.Errorf("%d: link %d is from %s to %s, want both %s", i, k, ours, theirs, two[k])
				}
			}
		})
	}
}

// TestRailLost has a peer whose second address cannot be connected.
func TestRailLost(t *testing.T) {
	es := processes(func(c *Config) {
		c.Addresses = []string{"127.0.0.2", "127.0.0.3"}
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if host, _, _ := net.SplitHostPort(addr); host == "127.0.0.3" {
				return nil, errTest
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}
	})(t, 2)
	send(t, es[0], 1, 1, pattern(10, 0))
	recv(t, es[1], 0, 1, 10)
	if n := len(es[0].peers[1].conns); n != 1 {
		t.Errorf("%d links, want 1", n)
	}
}

// TestQuickest has messages take the near links only.
func TestQuickest(t *testing.T) {
	near := func(ms ...int) (links []*conn) {
		for _, m := range ms {
			links = append(links, &conn{gauge: gauge{near: time.Duration(m) * time.Millisecond}})
		}
		return links
	}
	for _, c := range []struct {
		links []*conn
		want  int
	}{{near(0), 1}, {near(0, 0), 2}, {near(10, 11, 14), 3}, {near(10, 40), 1}, {near(40, 10), 1}, {near(0, 40), 1}} {
		if got := len(quickest(c.links)); got != c.want {
			t.Errorf("%d of %d links are quick, want %d", got, len(c.links), c.want)
		}
	}
}

// TestWithdrawn revokes a context while a send of another context, and one of the
// revoked, wait: those that come later are received.
func TestWithdrawn(t *testing.T) {
	es, _ := linked(t, 3, func(c *Config) { c.Credit = 4 << 10; c.EagerLimit = 512 })
	const other = Context(2)
	for _, e := range es {
		e.OpenContext(other, []Proc{0, 1})
	}
	for i := range 5000 {
		if _, err := es[0].Isend(&SendArgs{To: 1, Context: other, Tag: int32(i), Data: pattern(512, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := es[1].Probe(0, other, 0); err != nil {
		t.Fatal(err)
	}
	es[0].Revoke(other, errTest)
	for i := range 200 {
		if _, err := es[1].Recv(&RecvArgs{From: 0, Context: other, Tag: AnyTag, Buf: make([]byte, 512)}); err != nil && !errors.Is(err, ErrRefused) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	es[1].Revoke(other, errTest)
	send(t, es[0], 1, 1, nil)
	recv(t, es[1], 0, 1, 0)
}

// TestStripeModel sends messages of random sizes and tags over several links, and
// receives them by a random mix of tags and wildcards: a model of MPI's order says
// which must come.
func TestStripeModel(t *testing.T) {
	type sent struct {
		tag  int32
		data []byte
	}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		es, _ := linked(t, 2+int(seed%3), func(c *Config) { c.EagerLimit = 4 << 10; c.Credit = 64 << 10 })
		var order []sent
		var outs []ID
		for i := range 300 {
			order = append(order, sent{int32(rng.IntN(6)), pattern(rng.IntN(1<<rng.IntN(19)), i)})
		}
		go0 := make(chan struct{})
		go func() {
			defer close(go0)
			for _, m := range order {
				outs = append(outs, isend(t, es[0], 1, m.tag, m.data))
			}
			for _, id := range outs {
				wait(t, es[0], id)
			}
		}()
		for left := order; len(left) > 0; {
			tag := int32(rng.IntN(6))
			if rng.IntN(3) == 0 {
				tag = AnyTag
			}
			k := 0
			for k < len(left) && tag != AnyTag && left[k].tag != tag {
				k++
			}
			if k == len(left) {
				continue
			}
			want := left[k]
			got, st := recv(t, es[1], 0, tag, 1<<19)
			if st.Tag != want.tag || !bytes.Equal(got, want.data) {
				t.Fatalf("seed %d: %d messages are left; asked for tag %d, got %d bytes of tag %d, want %d of %d", seed, len(left), tag, len(got), st.Tag, len(want.data), want.tag)
			}
			left = append(append([]sent(nil), left[:k]...), left[k+1:]...)
		}
		<-go0
	}
}
