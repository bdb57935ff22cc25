// Package overlay lets a Go program be a node of a meshmpi network by itself: it
// joins with a token, inside its own process, without a daemon, a TUN or
// privilege, and the host around it notices nothing but UDP packets.
//
// The node is one like all others, with a name, addresses and a certificate, and
// reaches them directly or through relays. Connections run over a TCP/IP stack in
// the process; they are what net.Conn promises and slower than the kernel's. The
// node serves nobody else: no remote commands, no names for the host.
package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/meshmpi/meshmpi/internal/node"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// Config says which network to join, as whom.
type Config struct {
	// State is the directory that keeps the node's keys and certificate. If it
	// holds a node, that one is run; else the token makes one. "" keeps nothing:
	// the node is a new one each time, and its entry stays with the hub until an
	// administrator removes it or its certificate ends.
	State string
	Token string       // as meshctl token create prints it; "": $MESH_TOKEN. Not needed where State holds a node
	Name  string       // "": the host's name and the process's number
	Log   *slog.Logger // nil: silence
}

// Node is this process's node.
type Node struct {
	n    *node.Node
	stop context.CancelFunc
	done chan struct{} // closed when the node has ended
	err  error         // why, after done
	temp *temp         // holds the state, to remove; nil: State was given
	once sync.Once
}

// Join makes the process a node and returns when it runs. ctx bounds the joining;
// the node itself runs until Close.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{done: make(chan struct{})}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.State == "" {
		var err error
		if n.temp, err = newTemp(); err != nil {
			return nil, fmt.Errorf("overlay: a directory for the keys: %w", err)
		}
		cfg.State = filepath.Join(n.temp.path, "state")
	}
	if err := admit(ctx, cfg); err != nil {
		n.temp.remove()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	ready := make(chan *node.Node, 1)
	go func() { // ends at Close, which waits for it
		defer close(n.done)
		n.err = node.Run(run, node.Config{State: cfg.State, Userspace: true, Log: cfg.Log, Ready: func(r *node.Node) { ready <- r }})
	}()
	select {
	case n.n = <-ready:
		return n, nil
	case <-n.done:
		stop()
		n.temp.remove()
		return nil, n.err
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("overlay: join: %w", ctx.Err()), n.Close())
	}
}

// admit has a hub make us a node, unless we are one.
func admit(ctx context.Context, cfg Config) error {
	if _, err := os.Stat(filepath.Join(cfg.State, "node.json")); err == nil {
		return nil
	}
	t, err := token.Read(cfg.Token, strings.NewReader(""), os.Getenv("MESH_TOKEN"))
	if err != nil {
		return err
	}
	if cfg.Name == "" {
		cfg.Name = defaultName()
	}
	_, _, err = node.Join(ctx, node.JoinOptions{State: cfg.State, Name: cfg.Name, Token: t, Userspace: true})
	return err
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "go"
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	return host + "-" + strconv.Itoa(os.Getpid())
}

// Close leaves the network. What was written to connections that the program has
// closed is delivered first: Close waits for peers to acknowledge it while they do, 30 s
// at most, and 5 s for one of which nothing is heard. Connections that are open are
// reset. Close returns what was wrong with the node, if it had ended by itself.
func (n *Node) Close() error {
	n.once.Do(n.stop)
	<-n.done
	n.temp.remove()
	return n.err
}

// Done is closed when the node has ended, by Close or by itself.
func (n *Node) Done() <-chan struct{} { return n.done }

// Name returns the node's name.
func (n *Node) Name() string { return n.n.Self().Name }

// Site returns the site that the token puts the node in.
func (n *Node) Site() string { return n.n.Self().Site }

// Addrs returns the node's virtual addresses, IPv4 first.
func (n *Node) Addrs() []netip.Addr { return n.n.Self().Addrs() }

// Lookup returns the virtual addresses of a node by its name, IPv4 first.
func (n *Node) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return n.n.Lookup(ctx, name)
}

// Dial connects to HOST:PORT, where HOST is a node's name or a virtual address.
// The network is tcp, tcp4 or tcp6.
func (n *Node) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("overlay: dial: %w", err)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		addrs, err := n.n.Lookup(ctx, host)
		if err != nil {
			return nil, err
		}
		host = addrs[0].String()
		if network == "tcp6" {
			host = addrs[1].String()
		}
	}
	return n.n.Stack().Dial(ctx, network, net.JoinHostPort(host, port))
}

// Listen accepts connections to a port of the node's IPv4 address (network tcp or
// tcp4) or IPv6 address (tcp6). addr is ":PORT"; port 0 takes a free one.
func (n *Node) Listen(network, addr string) (net.Listener, error) {
	at, err := n.at(network, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return n.n.Stack().ListenTCP(at)
}

// ListenPacket opens a UDP socket, as Listen does for TCP.
func (n *Node) ListenPacket(network, addr string) (net.PacketConn, error) {
	at, err := n.at(network, "udp", addr)
	if err != nil {
		return nil, err
	}
	return n.n.Stack().ListenUDP(at)
}

func (n *Node) at(network, base, addr string) (netip.AddrPort, error) {
	a := n.Addrs()[0]
	switch network {
	case base, base + "4":
	case base + "6":
		a = n.Addrs()[1]
	default:
		return netip.AddrPort{}, fmt.Errorf("overlay: listen on %s: %w", network, errors.ErrUnsupported)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("overlay: listen: %w", err)
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("overlay: listen: port %q", port)
	}
	if host != "" {
		b, err := netip.ParseAddr(host)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("overlay: listen: %w", err)
		}
		if b = b.Unmap(); b.Is4() != a.Is4() && network != base {
			return netip.AddrPort{}, fmt.Errorf("overlay: listen on %s %s: it is of the other family", network, addr)
		}
		a = b
	}
	return netip.AddrPortFrom(a, uint16(p)), nil
}
