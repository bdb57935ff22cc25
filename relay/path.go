package relay

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/meshmpi/meshmpi/internal/wire"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

// ErrNotBound says that packets were dropped because the relay has not answered
// a bind, or does not any more. Another path may work.
var ErrNotBound = errors.New("relay: not bound; another path is needed until the relay answers")

// ErrClosed says that packets were dropped because their path is closed.
var ErrClosed = errors.New("relay: path is closed")

// errUnfit says that packets were empty or too long for a datagram.
var errUnfit = errors.New("relay: packets that are empty or do not fit into a datagram were dropped")

const (
	// wrapSize holds as much as one coalesced message does.
	wrapSize = 64 << 10
	// maxFrame is the largest UDP payload over IPv4: 65535 less 20 and 8 bytes
	// of headers.
	maxFrame = wire.MaxDatagram - 28
)

// wrap is memory for frames that lie back to back.
type wrap struct {
	buf    [wrapSize]byte
	frames [batchSize][]byte
}

// Path moves packets to one peer through the client's relay.
type Path struct {
	c      *Client
	to     peer.Short
	closed atomic.Bool
}

var _ peer.Path = (*Path)(nil)

// Path returns the way to a peer through this relay. It may be taken before the
// relay is bound; whether the peer is bound too, only probes can tell.
func (c *Client) Path(to peer.ID) *Path {
	return &Path{c: c, to: to.Short()}
}

// Send wraps and sends packets, in order. It copies them into memory of the
// client's pool and retains nothing. What cannot be sent is dropped and counted;
// the error says why the last of it was.
func (p *Path) Send(pkts [][]byte) error {
	c := p.c
	relay := c.live.Load()
	if closed := p.closed.Load(); closed || relay == nil {
		c.count.unbound.Add(uint64(len(pkts)))
		if closed {
			return ErrClosed
		}
		return ErrNotBound
	}
	w := c.wrapped.Get().(*wrap)
	defer c.wrapped.Put(w)
	var last error
	for len(pkts) > 0 {
		frames, taken, size, unfit := w.fill(pkts, p.to)
		pkts = pkts[taken:]
		if unfit > 0 {
			c.count.unfit.Add(uint64(unfit))
			last = errUnfit
		}
		if frames > 0 {
			if err := c.pass(w.frames[:frames], size, *relay); err != nil {
				last = err
			}
		}
	}
	return last
}

// pass hands frames of size bytes in all to the socket.
func (c *Client) pass(frames [][]byte, size int, relay netip.AddrPort) error {
	if err := c.send(frames, relay); err != nil {
		c.count.unsent.Add(uint64(len(frames)))
		return err
	}
	c.count.packets.Add(uint64(len(frames)))
	c.count.bytes.Add(uint64(size))
	return nil
}

// fill wraps as many of pkts as there is room for, back to back. It returns how
// many frames that made, how many packets it took for them, the frames' size in
// bytes, and how many packets do not fit into any datagram.
func (w *wrap) fill(pkts [][]byte, to peer.Short) (frames, taken, size, unfit int) {
	for _, p := range pkts {
		n := wire.RelayHeaderLen + len(p)
		if len(p) == 0 || n > maxFrame {
			taken++
			unfit++
			continue
		}
		if frames == len(w.frames) || size+n > len(w.buf) {
			break
		}
		f := w.buf[size : size+n]
		putHeader(f, wire.TypeRelaySend, to)
		copy(f[wire.RelayHeaderLen:], p)
		w.frames[frames] = f
		frames++
		taken++
		size += n
	}
	return frames, taken, size, unfit
}

// Info says that packets go through the relay. Round trip, loss and MTU of the
// whole path are for the mesh's probes to measure; the client's RTT is that of
// its first leg.
func (p *Path) Info() peer.PathInfo {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	info := peer.PathInfo{Kind: peer.KindRelayUDP, Remote: c.b.relay}
	if c.b.name != "" {
		info.Via = []string{c.b.name}
	}
	return info
}

// Close makes further Sends fail. The binding and other paths stay.
func (p *Path) Close() error {
	p.closed.Store(true)
	return nil
}
