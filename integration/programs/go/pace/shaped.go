package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper"
)

const (
	sealing = peer.Sealing
	data    = 4 // first byte of a sealed packet: not urgent
	batch   = 128
	backlog = 40 * time.Millisecond // that wait before the pacer, of the rate
)

// viaShaper has package shaper pace: one goroutine offers packets, seals what is let
// through and sends it, as the reader of meshd's TUN does.
func viaShaper(ctx context.Context, s *sending) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(wake)
	sh, err := shaper.New(shaper.Config{Kick: func() { _, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }}) // full: it is awake
	if err != nil {
		return err
	}
	defer sh.Close()
	link := sh.Link("there")
	link.SetRate(shaper.Rate(s.rate))
	out := newBatchWriter(s.conn)
	flow := link.Flow(peer.ID{}, out.send)
	defer flow.Close()
	r := &reader{s: s, sh: sh, link: link, flow: flow, bufs: make([][]byte, batch), sizes: make([]int, batch)}
	for i := range r.bufs {
		r.bufs[i] = make([]byte, s.size)
	}
	for ctx.Err() == nil {
		enough := r.offer()
		r.take()
		if !enough {
			continue
		}
		// A kick, or time to see whether there is still enough that waits.
		fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 5); n > 0 {
			var count [8]byte
			_, _ = unix.Read(wake, count[:])
		}
	}
	return nil
}

// reader is the goroutine that Admit and Take belong to.
type reader struct {
	s     *sending
	sh    *shaper.Shaper
	link  *shaper.Link
	flow  *shaper.Flow
	bufs  [][]byte
	sizes []int
}

// offer adds to the backlog before the pacer, which is to be at least 64 packets, and
// reports whether it is enough. It does not insist: where the sending is as fast as
// this goroutine, take must have its turn.
func (r *reader) offer() (enough bool) {
	want := max(int64(64*r.s.wire()), int64(r.s.rate/8*backlog.Seconds()))
	plain, size := [][]byte{make([]byte, r.s.size-sealing)}, make([]int, 1)
	for i := 0; i < 2*batch && r.link.Demand().Waiting < want; i++ {
		size[0] = len(plain[0])
		if r.flow.Admit(plain, size, 0); size[0] > 0 {
			r.seal(1)
		}
	}
	return r.link.Demand().Waiting >= want
}

// take fetches what is let through.
func (r *reader) take() {
	for {
		n := r.sh.Take(r.bufs, r.sizes, 0)
		r.seal(n)
		if n < len(r.bufs) {
			return
		}
	}
}

// seal sends as many sealed packets.
func (r *reader) seal(n int) {
	if n == 0 {
		return
	}
	for _, b := range r.bufs[:n] {
		b[0] = data
	}
	r.flow.Send(r.bufs[:n])
}

// batchWriter sends many datagrams by one system call. The pacer calls it from one
// goroutine at a time.
type batchWriter struct {
	conn *ipv4.PacketConn
	msgs []ipv4.Message
}

func newBatchWriter(c *net.UDPConn) *batchWriter {
	w := &batchWriter{conn: ipv4.NewPacketConn(c), msgs: make([]ipv4.Message, batch)}
	for i := range w.msgs {
		w.msgs[i].Buffers = make([][]byte, 1)
	}
	return w
}

func (w *batchWriter) send(pkts [][]byte) {
	for done := 0; done < len(pkts); {
		n := min(len(pkts)-done, len(w.msgs))
		for i, p := range pkts[done : done+n] {
			w.msgs[i].Buffers[0] = p
		}
		// What the kernel refuses is lost, as on any path; nothing here waits.
		if k, err := w.conn.WriteBatch(w.msgs[:n], unix.MSG_DONTWAIT); err == nil && k > 0 {
			n = k
		}
		done += n
	}
}
