package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// bitTC is the truncation bit, in a header's third octet.
const bitTC = 0x02

var errUnfit = errors.New("an answer that is none to the question")

// askUpstream asks one server by UDP, and again by TCP where the answer was cut
// and the client can take more. The answer has the ID of this exchange.
func askUpstream(ctx context.Context, up netip.AddrPort, q *query) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	asked := append([]byte(nil), q.raw...)
	if _, err := rand.Read(asked[:2]); err != nil {
		return nil, fmt.Errorf("dns: random ID: %w", err)
	}
	cut, err := askUDP(ctx, up, asked)
	if err != nil || cut[2]&bitTC == 0 {
		return cut, err
	}
	if !q.tcp && q.limit <= ednsUDP { // it would be cut again
		return cut, nil
	}
	full, err := askTCP(ctx, up, asked)
	if err != nil || len(full) > q.limit {
		return cut, nil
	}
	return full, nil
}

// askUDP exchanges one datagram each way, from a port of its own.
func askUDP(ctx context.Context, up netip.AddrPort, asked []byte) ([]byte, error) {
	conn, err := dial(ctx, "udp", up)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(asked); err != nil {
		return nil, fmt.Errorf("dns: ask %s: %w", up, err)
	}
	buf := make([]byte, maxUDP+1)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("dns: ask %s: %w", up, err)
		}
		if !answers(buf[:n], asked) {
			continue // forged or late: the true one may still come
		}
		if n > maxUDP { // cut by our buffer: keep the question, drop the rest
			end := questionEnd(asked)
			copy(buf[headerLen:], asked[headerLen:end])
			copy(buf[4:headerLen], []byte{0, 1, 0, 0, 0, 0, 0, 0})
			buf[2] |= bitTC
			return buf[:end:end], nil
		}
		return buf[:n:n], nil
	}
}

// askTCP exchanges one message each way over a connection.
func askTCP(ctx context.Context, up netip.AddrPort, asked []byte) ([]byte, error) {
	conn, err := dial(ctx, "tcp", up)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out := binary.BigEndian.AppendUint16(make([]byte, 0, len(asked)+2), uint16(len(asked)))
	if _, err := conn.Write(append(out, asked...)); err != nil {
		return nil, fmt.Errorf("dns: ask %s: %w", up, err)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("dns: ask %s: %w", up, err)
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, fmt.Errorf("dns: ask %s: %w", up, err)
	}
	if !answers(answer, asked) {
		return nil, fmt.Errorf("dns: ask %s: %w", up, errUnfit)
	}
	return answer, nil
}

// dial connects, with ctx's deadline and end upon everything that follows.
func dial(ctx context.Context, network string, up netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, up.String())
	if err != nil {
		return nil, fmt.Errorf("dns: ask %s: %w", up, err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	return &ending{conn, context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })}, nil
}

// ending is a connection that a context interrupts until it is closed.
type ending struct {
	net.Conn
	stop func() bool
}

func (c *ending) Close() error {
	c.stop()
	return c.Conn.Close()
}
