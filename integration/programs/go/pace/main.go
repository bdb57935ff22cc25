// Command pace sends UDP datagrams at a rate in one of several ways, so that a
// record of their arrivals shows how exact each way is. It always has something to
// send, and it does not measure.
//
//	pace -way shaper|sleep|ticker|socket|flood [-rate 100Mb/s] [-size 1472] [-seconds 4] [-depth BYTES] HOST:PORT
//
// shaper is package shaper on an ordinary socket, with copying in the place of
// encryption, as meshd uses it. sleep and ticker are what one would write without it:
// a token bucket of -depth bytes, filled by the clock, looked at after time.Sleep
// until the next datagram has its tokens, or each millisecond by a time.Ticker.
// socket sends as fast as the socket takes, to be held back by a queueing discipline
// of the kernel. flood sends a fifth more than the rate without pacing within
// milliseconds, in superpackets where the kernel has them: a backlog for meshd.
//
// All but flood take the precedence that meshd takes over ordinary programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/rate"
)

// overhead is what a datagram takes on the wire beyond its payload, bytes: Ethernet,
// IPv4, UDP.
const overhead = 14 + 20 + 8

// sending is what every way is told.
type sending struct {
	conn  *net.UDPConn
	rate  float64 // b/s on the wire
	size  int     // bytes of payload
	depth int     // bytes on the wire that a token bucket holds
}

// wire is what a datagram takes on the wire, bytes.
func (s *sending) wire() int { return s.size + overhead }

// ways do the sending until ctx ends.
func ways() map[string]func(context.Context, *sending) error {
	return map[string]func(context.Context, *sending) error{
		"shaper": viaShaper, "sleep": viaSleep, "ticker": viaTicker, "socket": viaSocket, "flood": flood,
	}
}

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "pace:", err)
		os.Exit(1)
	}
}

func run(args []string, usage io.Writer) error {
	flags := flag.NewFlagSet("pace", flag.ContinueOnError)
	flags.SetOutput(usage)
	way := flags.String("way", "shaper", "how to send")
	bits := flags.String("rate", "100Mb/s", "bits per second on the wire")
	size := flags.Int("size", 1472, "bytes of a datagram's payload")
	seconds := flags.Float64("seconds", 4, "how long to send")
	depth := flags.Int("depth", 0, "bytes that a token bucket holds; 0: two datagrams")
	if err := flags.Parse(args); err != nil {
		return err
	}
	send := ways()[*way]
	r, err := rate.Parse(*bits)
	switch {
	case send == nil:
		return fmt.Errorf("-way %s is none of shaper, sleep, ticker, socket and flood", *way)
	case err != nil:
		return fmt.Errorf("-rate: %w", err)
	case flags.NArg() != 1:
		return errors.New("one HOST:PORT to send to is wanted")
	case *size < 64 || *size > 1472:
		return fmt.Errorf("-size %d is not from 64 to 1472 bytes", *size)
	}
	to, err := net.ResolveUDPAddr("udp4", flags.Arg(0))
	if err != nil {
		return err
	}
	conn, err := net.DialUDP("udp4", nil, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &sending{conn: conn, rate: float64(r), size: *size, depth: *depth}
	if s.depth == 0 {
		s.depth = 2 * s.wire()
	}
	if *way != "flood" {
		_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0) // of this session, where there are such
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*seconds*float64(time.Second)))
	defer cancel()
	return send(ctx, s)
}

// bucket counts tokens by the clock.
type bucket struct {
	rate  float64 // bytes per second
	depth float64
	have  float64
	last  time.Time
}

// fill adds what has come by now.
func (b *bucket) fill(now time.Time) {
	b.have = min(b.have+now.Sub(b.last).Seconds()*b.rate, b.depth)
	b.last = now
}

// take reports whether there were tokens for n bytes, and takes them.
func (b *bucket) take(n int) bool {
	if b.have < float64(n) {
		return false
	}
	b.have -= float64(n)
	return true
}

// until is how long it is until there are tokens for n bytes.
func (b *bucket) until(n int) time.Duration {
	return time.Duration(max(float64(n)-b.have, 0) / b.rate * float64(time.Second))
}

func (s *sending) bucket() *bucket {
	return &bucket{rate: s.rate / 8, depth: float64(s.depth), last: time.Now()}
}

// viaSleep sleeps until the next datagram has its tokens.
func viaSleep(ctx context.Context, s *sending) error {
	b, pkt := s.bucket(), make([]byte, s.size)
	for ctx.Err() == nil {
		b.fill(time.Now())
		for b.take(s.wire()) {
			if err := s.write(pkt); err != nil {
				return err
			}
		}
		time.Sleep(b.until(s.wire()))
	}
	return nil
}

// viaTicker looks each millisecond.
func viaTicker(ctx context.Context, s *sending) error {
	b, pkt := s.bucket(), make([]byte, s.size)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		b.fill(<-tick.C)
		for b.take(s.wire()) {
			if err := s.write(pkt); err != nil {
				return err
			}
		}
	}
	return nil
}

// viaSocket leaves it to the kernel. The socket may have 20 ms of the rate on their
// way, so that it need not be woken in time, and at least 64 datagrams.
func viaSocket(ctx context.Context, s *sending) error {
	const perDatagram = 2304 // what the kernel counts for one in a buffer
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	datagrams := max(64, int(s.rate/8*0.020)/s.wire())
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, datagrams*perDatagram/2) // which the kernel doubles
	}); cerr != nil || err != nil {
		return fmt.Errorf("send buffer: %w", errors.Join(cerr, err))
	}
	pkt := make([]byte, s.size)
	for ctx.Err() == nil {
		if err := s.write(pkt); err != nil {
			return err
		}
	}
	return nil
}

// flood sends 1.2 times the rate. What it could not send because it had no processor it
// sends later, up to 100 ms of the rate.
func flood(ctx context.Context, s *sending) error {
	const most = 40 // datagrams of a superpacket, which is to stay below 64 KiB
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	joined := 1
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, s.size) }); cerr == nil && err == nil {
		joined = most
	}
	pkts := make([]byte, joined*s.size)
	n := joined * s.wire()
	b := &bucket{rate: s.rate * 1.2 / 8, last: time.Now()}
	b.depth = max(float64(n), b.rate*0.1)
	for ctx.Err() == nil {
		b.fill(time.Now())
		for b.take(n) {
			if err := s.write(pkts); err != nil {
				return err
			}
		}
		time.Sleep(b.until(n))
	}
	return nil
}

// write sends, and minds neither a receiver that is not there yet nor a queue that
// was full.
func (s *sending) write(pkt []byte) error {
	_, err := s.conn.Write(pkt)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}
