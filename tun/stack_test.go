package tun

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// joinStacks joins two stacks, as the overlay does; drop takes packets away.
func joinStacks(t *testing.T, a, b *Stack, drop func(pkt []byte) bool) {
	t.Helper()
	var wg sync.WaitGroup
	pump := func(from, to *Stack) {
		defer wg.Done()
		bufs, sizes := make([][]byte, stackBatch), make([]int, stackBatch)
		for i := range bufs {
			bufs[i] = make([]byte, 16+2000)
		}
		for {
			n, err := from.Read(bufs, sizes, 16)
			if err != nil {
				if !errors.Is(err, os.ErrClosed) {
					t.Errorf("read: %v", err)
				}
				return
			}
			var out [][]byte
			for i := range n {
				if pkt := bufs[i][:16+sizes[i]]; drop == nil || !drop(pkt[16:]) {
					out = append(out, pkt)
				}
			}
			if _, err := to.Write(out, 16); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Errorf("write: %v", err)
			}
		}
	}
	wg.Add(2)
	go pump(a, b)
	go pump(b, a)
	t.Cleanup(func() {
		a.Close()
		b.Close()
		wg.Wait()
	})
}

func twoStacks(t *testing.T) (a, b *Stack) {
	t.Helper()
	for i, s := range []**Stack{&a, &b} {
		var err error
		*s, err = NewStack([]netip.Addr{netip.AddrFrom4([4]byte{100, 80, 0, byte(i + 1)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)})}, 1400)
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// TestStackCarriesTCP: several megabytes each way over IPv4 and IPv6, with and
// without loss, arrive as they were sent.
func TestStackCarriesTCP(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		for family := range 2 {
			a, b := twoStacks(t)
			var drop func([]byte) bool
			if lossy {
				var mu sync.Mutex // guards n
				n := 0
				drop = func([]byte) bool {
					mu.Lock()
					defer mu.Unlock()
					n++
					return n%97 == 0
				}
			}
			joinStacks(t, a, b, drop)
			l, err := b.ListenTCP(netip.AddrPortFrom(b.Addrs()[family], 0))
			if err != nil {
				t.Fatal(err)
			}
			go func() { // ends with the connection
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = io.Copy(c, c) // the other end says what came back
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			c, err := a.Dial(ctx, "tcp", l.Addr().String())
			if err != nil {
				t.Fatalf("family %d: %v", family, err)
			}
			sent := make([]byte, 2<<20)
			rand.Read(sent)
			go func() { // ends when all is sent
				_, _ = c.Write(sent)
				_ = c.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("family %d, lossy %v: %d of %d bytes came back, %v", family, lossy, len(got), len(sent), err)
			}
			c.Close()
			l.Close()
			cancel()
		}
	}
}

func TestStackRefuses(t *testing.T) {
	a, b := twoStacks(t)
	joinStacks(t, a, b, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := a.DialTCP(ctx, netip.AddrPortFrom(b.Addrs()[0], 9)); err == nil {
		t.Error("a port where nobody listens was reached")
	}
	for _, x := range [][2]string{{"tcp", "host:1"}, {"tcp", "100.80.0.2"}, {"tcp", ""}, {"tcp4", "[fd00::2]:9"}, {"tcp6", "100.80.0.2:9"}} {
		if _, err := a.Dial(ctx, x[0], x[1]); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialled %s %q: %v", x[0], x[1], err)
		}
	}
	if _, err := a.Dial(ctx, "udp", "100.80.0.2:1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("udp: %v", err)
	}
	if _, err := NewStack(nil, 500); err == nil {
		t.Error("an MTU of 500 was taken")
	}
	if _, err := a.Write([][]byte{{0xff, 1, 2}, {}, nil}, 0); err != nil {
		t.Errorf("garbage: %v", err)
	}
	a.Close()
	if _, err := a.Read(make([][]byte, 1), make([]int, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// TestStackClosesMeanwhile: a stack that is closed while somebody begins to dial, or to
// listen, is closed all the same, and tells so whoever did.
func TestStackClosesMeanwhile(t *testing.T) {
	at := netip.MustParseAddrPort("100.80.0.1:80")
	for name, begin := range map[string]func(*Stack) error{
		"dial": func(s *Stack) error {
			_, err := s.DialTCP(context.Background(), netip.MustParseAddrPort("100.80.0.2:80"))
			return err
		},
		"listen": func(s *Stack) error {
			l, err := s.ListenTCP(at)
			if err == nil {
				_, err = l.Accept()
			}
			return err
		},
		"listen on udp": func(s *Stack) error {
			c, err := s.ListenUDP(at)
			if err == nil {
				_, _, err = c.ReadFrom(make([]byte, 1))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 200 {
				s, err := NewStack([]netip.Addr{at.Addr()}, 0)
				if err != nil {
					t.Fatal(err)
				}
				begun, closed := make(chan error, 1), make(chan error, 1)
				go func() { begun <- begin(s) }()
				go func() { closed <- s.Close() }()
				late := time.After(5 * time.Second)
				for begun != nil || closed != nil { // they end now, or the test fails
					select {
					case err := <-begun:
						if begun = nil; !errors.Is(err, net.ErrClosed) {
							t.Errorf("it ended with %v, want %v", err, net.ErrClosed)
						}
					case err := <-closed:
						if closed = nil; err != nil {
							t.Errorf("close: %v", err)
						}
					case <-late:
						t.Fatalf("after 5 s, Close has ended: %v; what began meanwhile: %v", closed == nil, begun == nil)
					}
				}
			}
		})
	}
}

func TestStackUDP(t *testing.T) {
	a, b := twoStacks(t)
	joinStacks(t, a, b, nil)
	pa, err := a.ListenUDP(netip.AddrPortFrom(a.Addrs()[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	defer pa.Close()
	pb, err := b.ListenUDP(netip.AddrPortFrom(b.Addrs()[0], 53))
	if err != nil {
		t.Fatal(err)
	}
	defer pb.Close()
	if _, err := pa.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.Addrs()[0], 53))); err != nil {
		t.Fatal(err)
	}
	_ = pb.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 100)
	n, from, err := pb.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "hello" || from.String() != pa.LocalAddr().String() {
		t.Errorf("got %q from %v, %v", buf[:n], from, err)
	}
}

// TestStackLearnsMTU: where the way carries less than the stack's MTU, TCP gets
// through nevertheless, and no longer packet passes.
func TestStackLearnsMTU(t *testing.T) {
	for family, mtu := range []int{700, 1300} {
		a, b := twoStacks(t)
		for _, s := range []*Stack{a, b} {
			if err := s.SetPeerMTU(append(a.Addrs(), b.Addrs()...)[family:][:1], mtu); err != nil {
				t.Fatal(err)
			}
			if err := s.SetPeerMTU(append(a.Addrs(), b.Addrs()...)[family+2:][:1], mtu); err != nil {
				t.Fatal(err)
			}
		}
		joinStacks(t, a, b, func(pkt []byte) bool {
			if len(pkt) > mtu {
				t.Errorf("family %d: a packet of %d bytes", family, len(pkt))
			}
			return false
		})
		l, err := b.ListenTCP(netip.AddrPortFrom(b.Addrs()[family], 0))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte, 1)
		go func() { // ends with the connection
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			all, _ := io.ReadAll(c)
			got <- all
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		c, err := a.Dial(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("x"), 100_000)
		if _, err := c.Write(sent); err != nil {
			t.Error(err)
		}
		c.Close()
		select {
		case all := <-got:
			if !bytes.Equal(all, sent) {
				t.Errorf("family %d: %d of %d bytes arrived", family, len(all), len(sent))
			}
		case <-ctx.Done():
			t.Errorf("family %d: nothing arrived", family)
		}
		cancel()
		l.Close()
	}
}
