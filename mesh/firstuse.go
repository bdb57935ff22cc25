package mesh

import (
	"context"
	"encoding/binary"
	"maps"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	wgtun "golang.zx2c4.com/wireguard/tun"
)

// firstUse stands between the TUN and wireguard-go and sees to it that the peer
// a packet is for is configured before WireGuard looks for it. Peers cost two
// goroutines and their queues each, so a node configures those it talks to.
// Packets that are paced leave it at their time only.
type firstUse struct {
	Device
	m       *Mesh
	known   atomic.Pointer[map[netip.Addr]*Endpoint]
	kicked  atomic.Bool   // the pacer has packets
	unknown atomic.Uint64 // packets to addresses nobody owns, or whose owner is not to be trusted
	events  chan wgtun.Event
	mtu     atomic.Int64 // of the TUN: to ask it is a system call

	refused map[netip.Addr]time.Time // asked for in vain, and when; Read's own
	reply   []byte                   // room for one message; Read's own

	mu      sync.RWMutex // held for reading while the loop is asked
	stopped bool
}

const (
	configureLimit = time.Second // how long one packet may hold up the TUN's reader
	refusedFor     = time.Second // how long packets to the same address then pass by
	maxRefused     = 64          // addresses; then all are forgotten
)

func newFirstUse(dev Device, m *Mesh) *firstUse {
	f := &firstUse{Device: dev, m: m, events: make(chan wgtun.Event), refused: map[netip.Addr]time.Time{}}
	f.known.Store(&map[netip.Addr]*Endpoint{})
	f.readMTU()
	if p := m.cfg.Pacer; p != nil {
		p.OnKick(func() {
			f.kicked.Store(true)
			dev.Interrupt()
		})
	}
	go func() { // ends with the device, which closes its events
		defer close(f.events)
		for e := range dev.Events() {
			if e &= wgtun.EventMTUUpdate; e != 0 {
				f.readMTU()
				f.events <- e
			}
		}
	}()
	return f
}

// readMTU keeps what was known where the TUN does not say.
func (f *firstUse) readMTU() {
	if n, err := f.Device.MTU(); err == nil {
		f.mtu.Store(int64(n))
	}
}

// Events implements tun.Device. It passes on changes of the MTU alone: were
// somebody to set the link down and up, wireguard-go would close and open its
// Bind, but the port is the mesh's for as long as it runs.
func (f *firstUse) Events() <-chan wgtun.Event { return f.events }

// know and unknow are called by the loop.
func (f *firstUse) know(addrs []netip.Addr, ep *Endpoint) {
	next := maps.Clone(*f.known.Load())
	for _, a := range addrs {
		next[a] = ep
	}
	f.known.Store(&next)
}

func (f *firstUse) unknow(addrs []netip.Addr) {
	next := maps.Clone(*f.known.Load())
	for _, a := range addrs {
		delete(next, a)
	}
	f.known.Store(&next)
}

// Read implements tun.Device.
func (f *firstUse) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		if f.kicked.Swap(false) {
			if n := f.m.cfg.Pacer.Take(bufs, sizes, offset); n > 0 {
				if n == len(bufs) {
					f.kicked.Store(true) // there may be more
				}
				return n, nil
			}
		}
		n, err := f.Device.Read(bufs, sizes, offset)
		if n > 0 {
			f.pass(bufs[:n], sizes, offset)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Write implements tun.Device. It counts what comes from nodes that are paced.
func (f *firstUse) Write(bufs [][]byte, offset int) (int, error) {
	if f.m.cfg.Pacer != nil {
		f.count(bufs, offset)
	}
	return f.Device.Write(bufs, offset)
}

// count notes packets on their way to the TUN with who has sent them.
func (f *firstUse) count(bufs [][]byte, offset int) {
	known, mtu := *f.known.Load(), int(f.mtu.Load())
	for i := 0; i < len(bufs); {
		src, ok := whence(bufs[i][offset:])
		bytes := wireSize(len(bufs[i])-offset, mtu)
		run := i + 1 // segments of one flow come together
		for ; run < len(bufs); run++ {
			if next, _ := whence(bufs[run][offset:]); next != src {
				break
			}
			bytes += wireSize(len(bufs[run])-offset, mtu)
		}
		if ep := known[src]; ok && ep != nil && ep.flow != nil {
			ep.rxWire.Add(bytes)
		}
		i = run
	}
}

// pass looks at packets from the TUN. The sizes of those that the pacer keeps
// become zero, which WireGuard passes over.
func (f *firstUse) pass(bufs [][]byte, sizes []int, offset int) {
	known := *f.known.Load()
	for i := 0; i < len(bufs); {
		dst, ok := destination(bufs[i][offset : offset+sizes[i]])
		run := i + 1 // segments of one flow come together
		for ; run < len(bufs); run++ {
			if next, _ := destination(bufs[run][offset : offset+sizes[run]]); next != dst {
				break
			}
		}
		if ok {
			ep, found := known[dst]
			if !found {
				f.ask(time.Now(), dst)
				known = *f.known.Load()
				ep = known[dst]
			}
			if ep != nil && f.m.cfg.Kernel {
				if how := fate(ep.fate.Load()); how != fine {
					f.outage(ep, how, bufs[i:run], sizes[i:run], offset)
				}
			}
			if ep != nil && ep.flow != nil {
				ep.flow.Admit(bufs[i:run], sizes[i:run], offset)
			}
		}
		i = run
	}
}

// ask has the loop configure the owner of an address. When that fails, or takes
// too long, the packet is lost, as packets may be, and so are those that follow
// it for a while: they must not hold up everybody else's.
func (f *firstUse) ask(now time.Time, dst netip.Addr) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.stopped {
		return
	}
	rec, ok := f.m.cfg.Directory.ByAddr(dst)
	if !ok || !f.m.trusted(now, rec) {
		f.unknown.Add(1)
		return
	}
	if at, ok := f.refused[dst]; ok && now.Sub(at) < refusedFor {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), configureLimit)
	defer cancel()
	configured := make(chan bool, 1)
	err := f.m.do(ctx, func(now time.Time) { configured <- f.m.configure(now, rec.Node.ID) != nil })
	if err == nil && <-configured {
		delete(f.refused, dst)
		return
	}
	if len(f.refused) >= maxRefused {
		clear(f.refused)
	}
	f.refused[dst] = time.Now()
}

// stop waits until no packet is asking and lets none ask again: wireguard-go
// waits for its TUN reader while it holds the lock that configuring needs.
func (f *firstUse) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
}

// File implements tun.Device. wireguard-go never needs it, and a descriptor
// handed out would be switched to blocking.
func (f *firstUse) File() *os.File { return nil }

// whence returns where an IP packet comes from.
func whence(pkt []byte) (netip.Addr, bool) {
	switch {
	case len(pkt) >= 20 && pkt[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(pkt[12:16])), true
	case len(pkt) >= 40 && pkt[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(pkt[8:24])), true
	}
	return netip.Addr{}, false
}

// destination returns where an IP packet goes.
func destination(pkt []byte) (netip.Addr, bool) {
	switch {
	case len(pkt) >= 20 && pkt[0]>>4 == 4:
		var a [4]byte
		binary.NativeEndian.PutUint32(a[:], binary.NativeEndian.Uint32(pkt[16:]))
		return netip.AddrFrom4(a), true
	case len(pkt) >= 40 && pkt[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(pkt[24:40])), true
	}
	return netip.Addr{}, false
}
