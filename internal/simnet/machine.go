package simnet

import (
	"fmt"
	"net/netip"
	"slices"
)

// Machine is a host: addresses on some networks, and UDP sockets that listen
// on all of them.
type Machine struct {
	sim *Sim

	// guarded by sim.mu
	ifaces  []iface
	sockets map[uint16]*Socket
}

type iface struct {
	net  *Network
	addr netip.Addr
}

// Machine makes a host with an address on each of the networks.
func (s *Sim) Machine(networks ...*Network) *Machine {
	m := &Machine{sim: s, sockets: make(map[uint16]*Socket)}
	for _, n := range networks {
		m.Attach(n)
	}
	return m
}

// Attach gives the machine one more interface and returns its address.
func (m *Machine) Attach(n *Network) netip.Addr {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	a := n.attach(m)
	m.ifaces = append(m.ifaces, iface{n, a})
	return a
}

// Detach takes the machine off a network, as if the cable were pulled.
func (m *Machine) Detach(n *Network) {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	m.ifaces = slices.DeleteFunc(m.ifaces, func(i iface) bool {
		if i.net == n {
			delete(n.hosts, i.addr)
		}
		return i.net == n
	})
}

// Addrs returns the machine's addresses in the order they were attached.
func (m *Machine) Addrs() []netip.Addr {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	var as []netip.Addr
	for _, i := range m.ifaces {
		as = append(as, i.addr)
	}
	return as
}

// Listen opens a UDP port on all of the machine's addresses. The simulation
// calls receive for each datagram, one at a time and from its own goroutine:
// receive must not block, and pkt is overwritten when it returns.
func (m *Machine) Listen(port uint16, receive func(pkt []byte, from netip.AddrPort)) (*Socket, error) {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	if port == 0 || m.sockets[port] != nil {
		return nil, fmt.Errorf("simnet: port %d is zero or in use", port)
	}
	s := &Socket{m: m, port: port, receive: receive}
	m.sockets[port] = s
	return s, nil
}

// arrive implements station.
func (m *Machine) arrive(_ *Network, p packet) func() {
	s := m.sockets[p.dst.Port()]
	if s == nil {
		m.sim.stats.Unroutable++
		return nil
	}
	m.sim.stats.Delivered++
	return func() {
		s.receive(p.data, p.src)
		clear(p.data) // whoever kept it shall notice
	}
}

// source chooses the interface that leads to an address: one on its network,
// else the first with a way there. The caller holds sim.mu.
func (m *Machine) source(to netip.Addr) (iface, bool) {
	for _, i := range m.ifaces {
		if i.net.prefix.Contains(to) {
			return i, true
		}
	}
	for _, i := range m.ifaces {
		if i.net.leads(to) {
			return i, true
		}
	}
	return iface{}, false
}

// Socket is an open UDP port of a machine.
type Socket struct {
	m       *Machine
	port    uint16
	receive func([]byte, netip.AddrPort)
}

// Port returns the local port.
func (s *Socket) Port() uint16 { return s.port }

// Send sends a copy of pkt. It never blocks. It returns ErrUnreachable where
// the machine's routes end; further away datagrams are lost without a word.
func (s *Socket) Send(pkt []byte, to netip.AddrPort) error {
	m := s.m
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	if m.sockets[s.port] != s {
		return fmt.Errorf("simnet: port %d is closed", s.port)
	}
	i, ok := m.source(to.Addr())
	if !ok {
		return ErrUnreachable
	}
	i.net.carry(m, packet{src: netip.AddrPortFrom(i.addr, s.port), dst: to, data: slices.Clone(pkt)})
	return nil
}

// Close closes the port. A receive under way may still run on.
func (s *Socket) Close() error {
	s.m.sim.mu.Lock()
	defer s.m.sim.mu.Unlock()
	if s.m.sockets[s.port] == s {
		delete(s.m.sockets, s.port)
	}
	return nil
}
