package tun

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"testing"
)

// reader reads a device until it is closed.
type reader struct {
	returned chan int // packets of each Read, as they return
	ended    chan error
}

func startReader(dev Device) *reader {
	r := &reader{returned: make(chan int), ended: make(chan error, 1)}
	go func() { // ends when the device is closed
		bufs, sizes := buffers(dev)
		for {
			n, err := dev.Read(bufs, sizes, headroom)
			if err != nil {
				r.ended <- err
				return
			}
			r.returned <- n
		}
	}()
	return r
}

// interruptible checks of a device that nothing is sent through that whatever the
// reader is doing, an interrupt has it return; close ends it.
func interruptible(t *testing.T, dev Device, closeDev func() error) {
	t.Helper()
	bufs, sizes := buffers(dev)
	read := func(what string) {
		t.Helper()
		if n, err := dev.Read(bufs, sizes, headroom); n != 0 || err != nil {
			t.Fatalf("%s: read %d, %v; want nothing and no error", what, n, err)
		}
	}
	dev.Interrupt()
	read("interrupted before")
	for range 3 {
		dev.Interrupt()
	}
	read("interrupted three times before")

	r := startReader(dev) // those before may have left an interrupt or not
	for range 200 {
		dev.Interrupt() // at any moment of its way from one Read to the next
		if n := <-r.returned; n != 0 {
			t.Fatalf("%d packets from nowhere", n)
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				dev.Interrupt()
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for seen := false; !seen; {
		select {
		case <-r.returned:
		case <-done:
			seen = true
		}
	}
	dev.Interrupt()
	<-r.returned // and still
	closed := make(chan error, 1)
	go func() { closed <- closeDev() }()
	for {
		select {
		case <-r.returned: // of an interrupt before
			continue
		case err := <-r.ended:
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("a closed device's reader ends with %v", err)
			}
		}
		break
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	dev.Interrupt() // of nobody, which is no matter
}

func TestInterruptPipe(t *testing.T) {
	p := NewPipe(0)
	interruptible(t, p, p.Close)
}

func TestInterruptStack(t *testing.T) {
	s, err := NewStack([]netip.Addr{own4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	interruptible(t, s, s.Close)
}

// quietTUN is a kernel TUN in a namespace of its own, where nobody sends.
func quietTUN(t *testing.T) *Host {
	t.Helper()
	isolate(t)
	run(t, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1") // it talks by itself
	cfg := testConfig(t.TempDir())
	cfg.Addr6, cfg.CIDR6 = netip.Addr{}, netip.Prefix{}
	h, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the device
		for range h.dev.Events() {
		}
	}()
	return h
}

func TestInterruptKernel(t *testing.T) {
	h := quietTUN(t)
	interruptible(t, h.Device(), h.Close)
}

// TestInterruptKeeps: an interrupt takes no packet away, nor the next one's way.
func TestInterruptKeeps(t *testing.T) {
	h := quietTUN(t)
	defer h.Close()
	dev := h.Device()
	for _, payload := range []string{"one", "two", "three"} {
		if err := sendUDP(t, peer4, 9, payload); err != nil {
			t.Fatal(err)
		}
		dev.Interrupt()
		readUntil(t, dev, payload)
	}
}
