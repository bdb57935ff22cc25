package tun

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	wgtun "golang.zx2c4.com/wireguard/tun"
)

// pipeQueue is how many packets wait each way in a Pipe: a few batches.
const pipeQueue = 256

// Pipe is a TUN in memory: whoever runs the overlay has it as a device, and a
// test is the host behind it. (wireguard's tuntest has one of a fixed MTU that
// blocks without limit and may be closed once.)
type Pipe struct {
	mtu       int
	out, in   chan []byte // to the device's reader, from its writer
	events    chan wgtun.Event
	interrupt chan struct{} // of size 1
	dropped   atomic.Uint64
	closeOnce sync.Once
	closed    chan struct{}
}

var _ Device = (*Pipe)(nil)

// NewPipe returns a Pipe; its first event says that it is up. An mtu of 0 means
// DefaultMTU.
func NewPipe(mtu int) *Pipe {
	if mtu == 0 {
		mtu = DefaultMTU
	}
	p := &Pipe{
		mtu: mtu, out: make(chan []byte, pipeQueue), in: make(chan []byte, pipeQueue),
		events: make(chan wgtun.Event, 1), interrupt: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	p.events <- wgtun.EventUp
	return p
}

// Send is the host sending a packet into the overlay. It copies the packet and
// never blocks; what finds the queue full or the Pipe closed is dropped, counted
// and reported as false.
func (p *Pipe) Send(pkt []byte) bool { return p.put(p.out, pkt) }

// Recv is the host receiving the next packet from the overlay. It returns
// os.ErrClosed after Close, or ctx's error.
func (p *Pipe) Recv(ctx context.Context) ([]byte, error) {
	select {
	case pkt := <-p.in:
		return pkt, nil
	default:
	}
	select {
	case pkt := <-p.in:
		return pkt, nil
	case <-p.closed:
		return nil, os.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Dropped counts the packets lost both ways.
func (p *Pipe) Dropped() uint64 { return p.dropped.Load() }

func (p *Pipe) put(queue chan<- []byte, pkt []byte) bool {
	select {
	case <-p.closed:
	default:
		select {
		case queue <- append([]byte(nil), pkt...):
			return true
		default:
		}
	}
	p.dropped.Add(1)
	return false
}

// Read implements tun.Device.
func (p *Pipe) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case <-p.closed:
		return 0, os.ErrClosed
	case <-p.interrupt:
		return 0, nil
	case pkt := <-p.out:
		for n := 0; ; n++ {
			if len(pkt) > len(bufs[n])-offset {
				return n, fmt.Errorf("tun: a packet of %d bytes overflows a buffer of %d", len(pkt), len(bufs[n])-offset)
			}
			sizes[n] = copy(bufs[n][offset:], pkt)
			if n+1 == len(bufs) {
				return n + 1, nil
			}
			select {
			case pkt = <-p.out:
			default:
				return n + 1, nil
			}
		}
	}
}

// Interrupt makes Read return.
func (p *Pipe) Interrupt() {
	select {
	case p.interrupt <- struct{}{}:
	default:
	}
}

// Write implements tun.Device. It never blocks: see Dropped.
func (p *Pipe) Write(bufs [][]byte, offset int) (int, error) {
	select {
	case <-p.closed:
		return 0, os.ErrClosed
	default:
	}
	n := 0
	for _, b := range bufs {
		if p.put(p.in, b[offset:]) {
			n++
		}
	}
	return n, nil
}

// MTU implements tun.Device.
func (p *Pipe) MTU() (int, error) { return p.mtu, nil }

// Name implements tun.Device.
func (p *Pipe) Name() (string, error) { return "pipe", nil }

// File implements tun.Device: there is none.
func (p *Pipe) File() *os.File { return nil }

// Events implements tun.Device.
func (p *Pipe) Events() <-chan wgtun.Event { return p.events }

// BatchSize implements tun.Device.
func (p *Pipe) BatchSize() int { return 16 }

// Close implements tun.Device. It may be called again.
func (p *Pipe) Close() error {
	p.closeOnce.Do(func() {
		close(p.closed)
		close(p.events)
	})
	return nil
}
