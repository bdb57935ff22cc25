// Package simnet is an in-memory network with NAT, loss and delay: machines
// with UDP sockets, networks they attach to, and routers between networks that
// translate addresses in the ways of RFC 4787.
//
// It exists so that the rooms that find paths can be tested against every kind
// of NAT in milliseconds, without privileges, and with the same result each
// time: one goroutine delivers every datagram, in order of time, and chance
// comes from a seed. Time is the time package's, so a simulation runs as well
// inside a testing/synctest bubble as in real time.
//
// It moves UDP payloads only. It knows no TCP, no fragments and no MTU, and it
// models delay and loss but no bandwidth: that is the lab's work.
package simnet

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// maxInFlight bounds the datagrams under way; what exceeds it is lost.
const maxInFlight = 1 << 16

// hopLimit ends packets that routers would pass around for ever.
const hopLimit = 16

// ErrUnreachable is returned when a machine has no network that leads to a
// destination.
var ErrUnreachable = errors.New("simnet: no route to destination")

// Stats counts what became of datagrams.
type Stats struct {
	Delivered  uint64 // handed to a socket
	Lost       uint64 // by a link's chance
	Filtered   uint64 // by a NAT
	Unroutable uint64 // nobody had the address, or the port
	Overflowed uint64 // more than the simulation holds
}

// Sim is one simulation. Its methods, and those of all it makes, are safe for
// concurrent use.
type Sim struct {
	done  chan struct{} // closed by Close
	ended chan struct{} // closed by the delivering goroutine as it ends
	wake  chan struct{} // size 1: the head of the queue has changed

	mu     sync.Mutex
	rng    *rand.Rand
	queue  events
	seq    uint64
	stats  Stats
	closed bool
}

// Start makes an empty simulation and starts the goroutine that delivers its
// datagrams, which ends with Close.
func Start(seed uint64) *Sim {
	s := &Sim{
		done:  make(chan struct{}),
		ended: make(chan struct{}),
		wake:  make(chan struct{}, 1),
		rng:   rand.New(rand.NewPCG(seed, seed)),
	}
	go s.deliver()
	return s
}

// Close drops whatever is under way and waits for the delivering goroutine, so
// it must not be called from a receive function.
func (s *Sim) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.done)
	}
	<-s.ended
	return nil
}

// Stats returns the counters.
func (s *Sim) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Link is how a network treats each datagram that crosses it.
type Link struct {
	Delay  time.Duration // one way
	Jitter time.Duration // added to Delay, uniformly between 0 and this
	Loss   float64       // probability, 0 to 1
}

// Network is a set of addresses that reach each other over one link.
type Network struct {
	sim    *Sim
	prefix netip.Prefix

	// guarded by sim.mu
	link    Link
	next    netip.Addr
	hosts   map[netip.Addr]station
	gateway station // the way out, nil while there is none
	routes  []route // ways to networks behind plain routers
}

type route struct {
	prefix netip.Prefix
	via    station
}

// station is what can take a datagram off a network. arrive is called with
// sim.mu held; the function it returns, if any, without.
type station interface {
	arrive(n *Network, p packet) func()
}

type packet struct {
	src, dst netip.AddrPort
	data     []byte
	hops     int
}

// Network makes a network whose addresses come from prefix, counting up from
// its second address.
func (s *Sim) Network(prefix netip.Prefix, link Link) *Network {
	prefix = prefix.Masked()
	return &Network{sim: s, prefix: prefix, link: link, next: prefix.Addr(), hosts: make(map[netip.Addr]station)}
}

// SetLink changes how the network treats the datagrams sent from now on.
func (n *Network) SetLink(link Link) {
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	n.link = link
}

// attach gives st the network's next free address. The caller holds sim.mu.
func (n *Network) attach(st station) netip.Addr {
	a := n.next.Next()
	if !n.prefix.Contains(a) {
		panic(fmt.Sprintf("simnet: network %v has no address left", n.prefix)) // the test's author erred
	}
	n.next = a
	n.hosts[a] = st
	return a
}

// leads reports whether the network has a way to the address.
func (n *Network) leads(to netip.Addr) bool { return n.hop(to) != nil }

func (n *Network) hop(to netip.Addr) station {
	if st := n.hosts[to]; st != nil {
		return st
	}
	for _, r := range n.routes {
		if r.prefix.Contains(to) {
			return r.via
		}
	}
	if n.prefix.Contains(to) || n.prefix.Addr().Is4() != to.Is4() {
		return nil
	}
	return n.gateway
}

// carry puts a packet on the network. The caller holds sim.mu.
func (n *Network) carry(from station, p packet) {
	s := n.sim
	st := n.hop(p.dst.Addr())
	p.hops++
	switch {
	case st == nil, st == from && n.hosts[p.dst.Addr()] != from, p.hops > hopLimit:
		s.stats.Unroutable++
		return
	case n.link.Loss > 0 && s.rng.Float64() < n.link.Loss:
		s.stats.Lost++
		return
	case s.closed, len(s.queue) >= maxInFlight:
		s.stats.Overflowed++
		return
	}
	delay := n.link.Delay
	if n.link.Jitter > 0 {
		delay += time.Duration(s.rng.Int64N(int64(n.link.Jitter) + 1))
	}
	s.seq++
	heap.Push(&s.queue, event{at: time.Now().Add(delay), seq: s.seq, to: st, on: n, p: p})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// deliver hands each packet to its station when its time has come.
func (s *Sim) deliver() {
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := s.step()
		timer.Reset(wait)
		select {
		case <-s.done:
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// step delivers what is due and returns how long nothing will be.
func (s *Sim) step() time.Duration {
	for {
		s.mu.Lock()
		if s.closed || len(s.queue) == 0 {
			s.mu.Unlock()
			return time.Hour
		}
		if wait := time.Until(s.queue[0].at); wait > 0 {
			s.mu.Unlock()
			return wait
		}
		e := heap.Pop(&s.queue).(event)
		receive := e.to.arrive(e.on, e.p)
		s.mu.Unlock()
		if receive != nil {
			receive()
		}
	}
}

type event struct {
	at  time.Time
	seq uint64 // what was sent first arrives first
	to  station
	on  *Network
	p   packet
}

// events is a heap by time.
type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}
