package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netspace is a network namespace that no path and no process keeps alive: it
// ends when this process does.
type netspace struct {
	name string
	ns   *os.File
	nl   *netlink.Handle
}

// onThread runs enter and then fn on an operating-system thread of its own,
// which ends afterwards, so that enter may move it into other namespaces.
func onThread(enter, fn func() error) error {
	done := make(chan error, 1)
	go func() { // ends with fn
		runtime.LockOSThread() // and is never unlocked: the runtime ends the thread
		err := errors.New("lab: the function ended its goroutine")
		defer func() { done <- err }()
		if failed := enter(); failed != nil {
			err = failed
			return
		}
		err = fn()
	}()
	return <-done
}

// newNetspace makes an empty network namespace.
func newNetspace(name string) (*netspace, error) {
	n := &netspace{name: name}
	err := onThread(
		func() error { return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET)) },
		func() error { return n.open("/proc/thread-self/ns/net") })
	if err != nil {
		return nil, fmt.Errorf("lab: make the network of %s: %w", name, explainPermission(err))
	}
	if err := n.up("lo"); err != nil {
		n.close()
		return nil, err
	}
	return n, n.quiet()
}

// openNetspace opens the network namespace of a process.
func openNetspace(name string, pid int) (*netspace, error) {
	n := &netspace{name: name}
	path := "/proc/" + strconv.Itoa(pid) + "/ns/net"
	enter := func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return os.NewSyscallError("setns", unix.Setns(int(f.Fd()), unix.CLONE_NEWNET))
	}
	if err := onThread(enter, func() error { return n.open(path) }); err != nil {
		return nil, fmt.Errorf("lab: enter the network of %s: %w", name, err)
	}
	return n, nil
}

// open is called on a thread inside the namespace.
func (n *netspace) open(path string) (err error) {
	if n.ns, err = os.Open(path); err != nil {
		return err
	}
	if n.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		n.ns.Close()
	}
	return err
}

func (n *netspace) close() {
	if n != nil {
		n.nl.Close()
		n.ns.Close()
	}
}

// do runs fn on a thread inside the namespace.
func (n *netspace) do(fn func() error) error {
	return onThread(func() error {
		return os.NewSyscallError("setns", unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET))
	}, fn)
}

// sysctl sets a value below /proc/sys/net.
func (n *netspace) sysctl(values map[string]string) error {
	err := n.do(func() error {
		for key, value := range values {
			path := filepath.Join("/proc/sys/net", strings.ReplaceAll(key, ".", "/"))
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lab: settings of %s: %w", n.name, err)
	}
	return nil
}

// quiet makes addresses usable at once (no duplicate address detection) and
// takes packets from wherever they come.
func (n *netspace) quiet() error {
	return n.sysctl(map[string]string{
		"ipv6.conf.default.accept_dad":    "0",
		"ipv6.conf.default.dad_transmits": "0",
		"ipv4.conf.all.rp_filter":         "0",
		"ipv4.conf.default.rp_filter":     "0",
	})
}

// forward makes the namespace a router. Its own interfaces listen to nobody's
// router advertisements.
func (n *netspace) forward() error {
	return n.sysctl(map[string]string{
		"ipv4.ip_forward":                  "1",
		"ipv6.conf.all.forwarding":         "1",
		"ipv4.conf.all.send_redirects":     "0",
		"ipv4.conf.default.send_redirects": "0",
	})
}

func (n *netspace) up(link string) error { return n.setUp(link, true) }

func (n *netspace) setUp(link string, up bool) error {
	l, err := n.nl.LinkByName(link)
	if err == nil && up {
		err = n.nl.LinkSetUp(l)
	} else if err == nil {
		err = n.nl.LinkSetDown(l)
	}
	if err != nil {
		return fmt.Errorf("lab: %s of %s up %v: %w", link, n.name, up, err)
	}
	return nil
}

// settle returns when the links carry packets and their addresses can be used,
// which the kernel arranges a moment after it was asked.
func (n *netspace) settle(links ...string) error {
	deadline := time.Now().Add(5 * time.Second)
	for _, link := range links {
		for {
			ready, err := n.ready(link)
			if err == nil && !ready && time.Now().After(deadline) {
				err = errors.New("the kernel does not bring it up")
			}
			if err != nil {
				return fmt.Errorf("lab: %s of %s: %w", link, n.name, err)
			}
			if ready {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// ready reports whether a link carries packets and has usable addresses. Since
// Linux 6.8 asking for a link makes the kernel note its carrier at once;
// before, that can take a second.
func (n *netspace) ready(link string) (bool, error) {
	l, err := n.nl.LinkByName(link)
	if err != nil {
		return false, err
	}
	if state := l.Attrs().OperState; state != netlink.OperUp && state != netlink.OperUnknown {
		return false, nil
	}
	addrs, err := n.nl.AddrList(l, unix.AF_INET6)
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			return false, err
		}
	}
	return err == nil, err
}

// remove removes a link, if it is there.
func (n *netspace) remove(link string) error {
	l, err := n.nl.LinkByName(link)
	if err == nil {
		err = n.nl.LinkDel(l)
	}
	if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lab: remove %s of %s: %w", link, n.name, err)
	}
	return nil
}

// address gives the link addresses and sets it up.
func (n *netspace) address(link string, addrs ...netip.Prefix) error {
	l, err := n.nl.LinkByName(link)
	for _, a := range addrs {
		if err != nil {
			break
		}
		if !a.IsValid() {
			continue
		}
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		err = n.nl.AddrAdd(l, addr)
	}
	if err == nil {
		err = n.nl.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("lab: addresses %v for %s of %s: %w", addrs, link, n.name, err)
	}
	return nil
}

// route sends what goes to dst through via. An invalid dst is the default.
func (n *netspace) route(dst netip.Prefix, via netip.Addr) error {
	if !via.IsValid() {
		return nil
	}
	r := &netlink.Route{Gw: via.AsSlice()}
	if dst.IsValid() {
		r.Dst = ipNet(dst)
	}
	if err := n.nl.RouteReplace(r); err != nil {
		return fmt.Errorf("lab: route of %s to %v via %v: %w", n.name, dst, via, err)
	}
	return nil
}

// bridge makes an Ethernet switch. It keeps to Ethernet: where br_netfilter is there,
// Linux would have every frame pass the rules for packets too, the router's address
// translation included.
func (n *netspace) bridge(name string, mtu int) error {
	const rules = "bridge.bridge-nf-call-"
	err := n.sysctl(map[string]string{rules + "arptables": "0", rules + "iptables": "0", rules + "ip6tables": "0"})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	snoop := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err = n.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snoop})
	if err != nil {
		return fmt.Errorf("lab: switch %s of %s: %w", name, n.name, err)
	}
	return n.up(name)
}

// plug puts a link into a bridge, or takes it out of any if name is "".
func (n *netspace) plug(link, name string) error {
	l, err := n.nl.LinkByName(link)
	if err == nil && name == "" {
		err = n.nl.LinkSetNoMaster(l)
	} else if err == nil {
		var b netlink.Link
		if b, err = n.nl.LinkByName(name); err == nil {
			err = n.nl.LinkSetMaster(l, b)
		}
	}
	if err != nil {
		return fmt.Errorf("lab: plug %s of %s into %q: %w", link, n.name, name, err)
	}
	return nil
}

// cable joins two namespaces by a pair of virtual Ethernet interfaces.
func cable(a *netspace, aName string, b *netspace, bName string, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = aName, mtu
	v := netlink.NewVeth(attrs)
	v.PeerName, v.PeerNamespace, v.PeerMTU = bName, netlink.NsFd(int(b.ns.Fd())), uint32(mtu)
	if err := a.nl.LinkAdd(v); err != nil {
		return fmt.Errorf("lab: cable from %s of %s to %s of %s: %w", aName, a.name, bName, b.name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
