package engine

import (
	"context"
	"net"
	"sync"
	"testing"
)

// maker makes engines that are connected in one of the ways there are.
type maker func(t testing.TB, n int, adapt ...func(*Config)) []*Engine

// suite is what holds on every kind of link.
var suite = []struct {
	name string
	test func(t *testing.T, newWorld maker)
}{
	{"Unexpected", testUnexpected},
	{"Truncate", testTruncate},
	{"Self", testSelf},
	{"Synchronous", testSynchronous},
	{"Cancel", testCancel},
	{"WaitAny", testWaitAny},
	{"Mprobe", testMprobe},
	{"Flood", testFlood},
	{"Reverse", testReverse},
	{"BeforeOpen", testBeforeOpen},
	{"CloseBusy", testCloseBusy},
	{"Post", testPost},
	{"Callback", testCallback},
	{"CallbackPanic", testCallbackPanic},
	{"Done", testDone},
	{"Arguments", testArguments},
	{"SendRecv", testSendRecv},
	{"Fail", testFail},
	{"Revoke", testRevoke},
	{"Leave", testLeave},
	{"Relieved", testRelieved},
}

// kinds are the kinds of links.
var kinds = []struct {
	name string
	make maker
}{
	{"hub", newWorld},
	{"tcp", processes()},
	{"tcp/3", processes(func(c *Config) { c.Links = 3 })},
	{"shared", processes(func(c *Config) { c.SharedMemory = true })},
	{"conn", overPipes},
	{"group", grouped(2)},
}

func TestSuite(t *testing.T) {
	for _, k := range kinds {
		for _, c := range suite {
			t.Run(k.name+"/"+c.name, func(t *testing.T) { c.test(t, k.make) })
		}
	}
}

// processes makes engines as those of several processes are, though they are in
// this one.
func processes(adapt ...func(*Config)) maker {
	return func(t testing.TB, n int, more ...func(*Config)) []*Engine {
		t.Helper()
		d := directory{cards: make([][]byte, n)}
		es := make([]*Engine, n)
		members := make([]Proc, n)
		for i := range es {
			members[i] = Proc(i)
			cfg := Config{Self: Proc(i), Size: n, Job: []byte("job"), Resolve: d.resolve, Addresses: []string{"127.0.0.1"}}
			for _, f := range append(adapt, more...) {
				f(&cfg)
			}
			var err error
			if es[i], err = New(cfg); err != nil {
				t.Fatal(err)
			}
			d.cards[i] = es[i].Card()
		}
		for _, e := range es {
			e.OpenContext(world, members)
			if err := e.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { closeAll(t, es) })
		return es
	}
}

// directory is where cards are found.
type directory struct{ cards [][]byte }

func (d *directory) resolve(_ context.Context, p Proc) ([]byte, error) { return d.cards[p], nil }

// overPipes makes engines connected by connections in memory.
func overPipes(t testing.TB, n int, adapt ...func(*Config)) []*Engine {
	net := &pipes{at: map[string]*pipeListener{}}
	return processes(func(c *Config) { c.Dial, c.Listen = net.dial, net.listen })(t, n, adapt...)
}

// pipes is a network of net.Pipe.
type pipes struct {
	mu sync.Mutex // guards at
	at map[string]*pipeListener
}

type pipeListener struct {
	addr pipeAddr
	come chan net.Conn
	shut chan struct{}
	once sync.Once
}

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

func (p *pipes) listen(context.Context) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{addr: pipeAddr("pipe:" + string(rune('a'+len(p.at)))), come: make(chan net.Conn), shut: make(chan struct{})}
	p.at[string(l.addr)] = l
	return l, nil
}

func (p *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	p.mu.Lock()
	l := p.at[addr]
	p.mu.Unlock()
	if l == nil {
		return nil, net.ErrClosed
	}
	a, b := net.Pipe()
	select {
	case l.come <- b:
		return a, nil
	case <-l.shut:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.come:
		return c, nil
	case <-l.shut:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.shut) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return l.addr }
