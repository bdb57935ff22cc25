package trunk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is nodes that connect to each other by pipes, and how often they do.
type network struct {
	nodes []*Node
	mu    sync.Mutex // guards made
	made  map[[2]int]int
}

// newNetwork makes the nodes of a job: so many on each of two sites.
func newNetwork(t *testing.T, ranks, links int) *network {
	t.Helper()
	w := &network{made: map[[2]int]int{}}
	sites := make([]int, 2*ranks)
	for i := range sites {
		sites[i] = i % 2 // interleaved
	}
	for i := range sites {
		n, err := New(Config{Self: i, Sites: sites, Links: links, Connect: func(_ context.Context, to int) (net.Conn, error) { return w.connect(i, to) }})
		if err != nil {
			t.Fatal(err)
		}
		w.nodes = append(w.nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// connect is what an engine does, without the proofs.
func (w *network) connect(from, to int) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	theirs, err := l.Accept()
	if err == nil {
		err = w.nodes[to].Attach(from, theirs, func() error { return nil })
	}
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[[2]int{min(from, to), max(from, to)}]++
	return ours, nil
}

// far counts the connections between the sites.
func (w *network) far() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pair, k := range w.made {
		if pair[0]%2 != pair[1]%2 {
			n += k
		}
	}
	return n
}

// echo serves the channels of a node until it is closed.
func (w *network) echo(i int) {
	for {
		c, err := w.nodes[i].Accept()
		if err != nil {
			return
		}
		go func() { // ends with the channel
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

func dial(t *testing.T, n *Node, to int) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := n.Dial(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestChannels has every process talk to every one of the other site, at the same
// time, more than windows hold; it counts the connections that this takes.
func TestChannels(t *testing.T) {
	for _, links := range []int{1, 2, 3} {
		const ranks = 4
		w := newNetwork(t, ranks, links)
		var all sync.WaitGroup
		for i := range w.nodes {
			go w.echo(i)
		}
		for a := range w.nodes {
			for b := range w.nodes {
				if a%2 == b%2 {
					continue
				}
				c := dial(t, w.nodes[a], b)
				want := bytes.Repeat([]byte(fmt.Sprintf("%d to %d, ", a, b)), 40_000)
				all.Go(func() {
					if _, err := c.Write(want); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					got := make([]byte, len(want))
					if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
						t.Errorf("from %d to %d: other bytes, %v", a, b, err)
					}
					c.Close()
				})
			}
		}
		all.Wait()
		if got := w.far(); got > links {
			t.Errorf("%d connections between the sites, want %d", got, links)
		}
		for i, n := range w.nodes {
			for !n.Drained() {
				time.Sleep(time.Millisecond)
			}
			if s := n.Stats(); s.Channels+s.Transit+s.Held > 0 || s.Dropped > 0 {
				t.Errorf("%d: left behind: %+v", i, s)
			}
		}
	}
}

// TestWindow writes to who does not read: no more than a window is taken, by nobody.
func TestWindow(t *testing.T) {
	w := newNetwork(t, 3, 1)
	c := dial(t, w.nodes[4], 5)
	other, err := w.nodes[5].Accept()
	if err != nil {
		t.Fatal(err)
	}
	window := c.(*Channel).window
	if n, err := c.Write(make([]byte, window)); n != window || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if err := c.SetWriteDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("wrote %d beyond the window, %v", n, err)
	}
	if _, err := io.ReadFull(other, make([]byte, window)); err != nil {
		t.Error(err)
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, window/2)); err != nil { // there is room again
		t.Error(err)
	}
	c.Close()
	if _, err := io.ReadFull(other, make([]byte, window/2)); err != nil {
		t.Error(err)
	}
	if _, err := other.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	other.Close()
}

// TestDeaths kills processes: the ends of channels with them, or through them, are
// told, and others live on.
func TestDeaths(t *testing.T) {
	w := newNetwork(t, 3, 2) // gateways are 0, 2 and 1, 3
	pair := func(a, b int) (net.Conn, net.Conn) {
		c := dial(t, w.nodes[a], b)
		o, err := w.nodes[b].Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c, o
	}
	broken := func(what string, c net.Conn) {
		t.Helper()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrEnded) {
			t.Errorf("%s: got %v, want %v", what, err, ErrEnded)
		}
	}
	// Those of one site are 0, 2, 4 and of the other 1, 3, 5: by their places in it 4
	// and 1 use the first lane, 4 and 3 the second, through 2 and 3.
	victim, atVictim := pair(0, 5)
	if err := w.nodes[5].Close(); err != nil {
		t.Fatal(err)
	}
	broken("with a dead process", victim)
	atVictim.Close()
	through, other := pair(2, 1)
	direct, there := pair(4, 3)
	if err := w.nodes[3].Close(); err != nil {
		t.Fatal(err)
	}
	broken("with a dead gateway", direct)
	broken("through a dead gateway", through)
	broken("its other end", other)
	there.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if c, err := w.nodes[2].Dial(ctx, 1); err == nil {
		c.Close()
		t.Error("dialed through a dead gateway")
	}
}

// TestNoWay dials where there is nobody to go to.
func TestNoWay(t *testing.T) {
	w := newNetwork(t, 2, 1)
	if _, err := w.nodes[0].Dial(t.Context(), 2); err == nil {
		t.Error("dialed within a site")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.nodes[0].Dial(over, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := New(Config{Sites: []int{0, 1}, Links: 17}); err == nil {
		t.Error("made with 17 connections")
	}
}

// TestRoute goes every way there is and counts.
func TestRoute(t *testing.T) {
	sites := []int{7, 7, 8, 8, 8, 9, 7}
	p := newPlan(sites, 2)
	for src := range sites {
		for dst := range sites {
			if sites[src] == sites[dst] {
				continue
			}
			lane, far, at := p.lane(src, dst), 0, src
			if lane != p.lane(dst, src) {
				t.Errorf("%d and %d: two lanes", src, dst)
			}
			for hops := 0; at != dst; hops++ {
				next := p.next(at, dst, lane)
				if sites[next] != sites[at] {
					far++
				}
				if at = next; hops > 3 {
					t.Fatalf("from %d to %d: no end", src, dst)
				}
			}
			if far != 1 {
				t.Errorf("from %d to %d: %d hops between sites", src, dst, far)
			}
		}
	}
	if got := newPlan(make([]int, 100), 4).window(0, 0); got < leastWindow || got > mostWindow {
		t.Errorf("window of %d bytes", got)
	}
}

func FuzzPacket(f *testing.F) {
	f.Add((&packet{kind: kindData, n: 5, src: 1, dst: 2, number: 9, theirs: true, lane: 3}).encode(nil))
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p packet
		if err := p.decode(b, 8); err != nil {
			return
		}
		if got := p.encode(nil); !bytes.Equal(got, b) {
			t.Errorf("got % x, want % x", got, b)
		}
	})
}

// FuzzHop gives a node what a neighbour might send.
func FuzzHop(f *testing.F) {
	open := (&packet{kind: kindOpen, src: 0, dst: 1, lane: 1, number: 1}).encode(nil)
	data := append((&packet{kind: kindData, n: 3, src: 0, dst: 1, lane: 1, number: 1}).encode(nil), 1, 2, 3)
	f.Add(append(append([]byte{}, open...), data...))
	f.Add((&packet{kind: kindOpen, src: 2, dst: 5, lane: 1, number: 1}).encode(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		n, err := New(Config{Self: 1, Sites: []int{0, 1, 0, 1, 0, 1}, Links: 2, Connect: func(context.Context, int) (net.Conn, error) { return nil, io.EOF }})
		if err != nil {
			t.Fatal(err)
		}
		h := &hop{n: n, to: 0}
		h.changed.L = &n.mu
		n.hops[0] = h
		if err := h.receive(bytes.NewReader(in)); err == nil {
			t.Error("it ended without a reason")
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}
