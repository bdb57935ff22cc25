package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/internal/oneline"
	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/hub"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
	"github.com/meshmpi/meshmpi/tun"
)

// InitOptions says what network to found.
type InitOptions struct {
	State         string
	Name, Site    string // of this first node, a hub
	Advertise     string // HOST:PORT that others reach it at
	Network       string // "": mesh
	Domain        string // "": NETWORK.internal
	CIDR          string // "": chosen so that it overlaps nothing here
	AllowRootExec bool
}

// Init founds a network: the root key, this hub's certificates, its store. It
// either succeeds or leaves nothing behind.
func Init(opt InitOptions) (peer.Node, peer.Network, error) {
	fail := func(err error) (peer.Node, peer.Network, error) { return peer.Node{}, peer.Network{}, err }
	if err := opt.Check(); err != nil {
		return fail(err)
	}
	draft, err := state.Create(opt.State) // first: with a node there, nothing else is worth saying
	if err != nil {
		return fail(err)
	}
	defer draft.Abort() // does nothing after Commit
	network, err := opt.network()
	if err != nil {
		return fail(err)
	}
	if a := opt.advertised(); network.CIDR4.Contains(a) || network.CIDR6.Contains(a) {
		return fail(fmt.Errorf("--advertise %s is one of the network's own virtual addresses (%s), which nobody has before joining; name one that this host has already", opt.Advertise, network.CIDR4))
	}
	keys, err := cert.NewKeys()
	if err != nil {
		return fail(err)
	}
	now := time.Now()
	root, err := cert.NewRoot(network, now)
	if err != nil {
		return fail(err)
	}
	if network, err = cert.NetworkOf(root.Cert.Raw); err != nil {
		return fail(err)
	}
	issuer, err := root.NewIssuer(opt.Name, now)
	if err != nil {
		return fail(err)
	}
	// The directory of the hub's files comes with the first of them.
	if err := oneline.Join(draft.SaveRoot(root), draft.SaveIssuer(issuer)); err != nil {
		return fail(err)
	}
	store, err := hub.OpenBolt(draft.Path(storeFile))
	if err != nil {
		return fail(err)
	}
	self, chain, err := hub.AdmitFirst(store, network, issuer, keys, opt.Name, opt.Site, now)
	if cerr := store.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fail(err)
	}
	for _, save := range []func() error{
		func() error { return draft.SaveKeys(keys) },
		func() error { return draft.SaveChain(chain) },
		func() error {
			return draft.SaveNode(state.Node{Name: opt.Name, Site: opt.Site, Network: network.Name,
				Hubs: []string{loopbackOf(opt.Advertise)}, Advertise: opt.Advertise, Hub: true})
		},
		draft.Commit,
	} {
		if err := save(); err != nil {
			return fail(err)
		}
	}
	return self, network, nil
}

// Check reports in a line for the user an option that can never be right. It
// fills in defaults.
func (opt *InitOptions) Check() error {
	if opt.Network == "" {
		opt.Network = "mesh"
	}
	if opt.Domain == "" {
		opt.Domain = opt.Network + ".internal"
	}
	opt.Domain = strings.ToLower(opt.Domain)
	for _, l := range []struct{ flag, value string }{{"network", opt.Network}, {"name", opt.Name}, {"site", opt.Site}} {
		if err := cert.ValidLabel(l.value); err != nil {
			return fmt.Errorf("--%s: %w", l.flag, err)
		}
	}
	if err := cert.ValidDomain(opt.Domain); err != nil {
		return fmt.Errorf("--domain: %w", err)
	}
	if err := ownDomain(opt.Domain); err != nil {
		return fmt.Errorf("--domain %s: %w; leave it out for %s.internal, or name one beneath a domain of yours", opt.Domain, err, opt.Network)
	}
	if err := token.ValidHub(opt.Advertise); err != nil {
		return fmt.Errorf("--advertise: %w, where other nodes reach this one", err)
	}
	if a := opt.advertised(); a.IsLinkLocalUnicast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("--advertise %s: no other network reaches that address; name one that other nodes can dial", opt.Advertise)
	}
	if opt.CIDR == "" {
		return nil
	}
	p, err := netip.ParsePrefix(opt.CIDR)
	if err != nil {
		return fmt.Errorf("--cidr %q is not an IPv4 prefix such as 100.80.0.0/16", opt.CIDR)
	}
	if !p.Addr().Is4() || p.Bits() > 28 || p.Bits() < 8 || p.Masked() != p {
		return fmt.Errorf("--cidr %s must be an IPv4 network between /8 and /28, without host bits, such as 100.80.0.0/16", p)
	}
	return nil
}

// Warnings tells in a line each what is allowed and yet seldom meant.
func (opt *InitOptions) Warnings() (lines []string) {
	host, _, _ := net.SplitHostPort(opt.Advertise)
	if opt.advertised().IsLoopback() || strings.EqualFold(host, "localhost") {
		lines = append(lines, fmt.Sprintf("--advertise %s is known to this host alone: no other can join", opt.Advertise))
	}
	p, err := netip.ParsePrefix(opt.CIDR)
	private := func(within string) bool {
		r := netip.MustParsePrefix(within)
		return r.Contains(p.Addr()) && r.Bits() <= p.Bits()
	}
	if err == nil && !slices.ContainsFunc([]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"}, private) { // RFC 1918, RFC 6598
		lines = append(lines, fmt.Sprintf("--cidr %s is not private: its nodes will not reach what the Internet has at these addresses", p))
	}
	return lines
}

// advertised is the address others reach us at; none where it is a name.
func (opt *InitOptions) advertised() netip.Addr {
	host, _, _ := net.SplitHostPort(opt.Advertise)
	a, _ := netip.ParseAddr(host)
	return a.Unmap()
}

// ownDomain reports why a domain cannot be a network's: nodes answer for all of it,
// so that nobody else's names in it are found.
func ownDomain(domain string) error {
	labels := strings.Split(domain, ".")
	last := labels[len(labels)-1]
	switch {
	case strings.Trim(last, "0123456789") == "":
		return errors.New("it reads like an address")
	case slices.Contains([]string{"arpa", "invalid", "local", "localhost", "onion"}, last): // RFC 6761, 6762, 7686
		return fmt.Errorf("names in %s are not for DNS servers to give away", last)
	case len(labels) == 1:
		return errors.New("it is a whole top-level domain, whose other names the nodes would no longer find")
	}
	return nil
}

// network turns checked options into what the root certificate will say.
func (opt *InitOptions) network() (n peer.Network, err error) {
	n = peer.Network{Name: opt.Network, Domain: opt.Domain, AllowRootExec: opt.AllowRootExec}
	if opt.CIDR == "" {
		n.CIDR4, err = tun.PickCIDR4()
	} else if n.CIDR4, err = netip.ParsePrefix(opt.CIDR); err == nil {
		err = tun.CheckOverlap(n.CIDR4)
	}
	if err != nil {
		return peer.Network{}, err
	}
	if n.CIDR6, err = randomULA(); err != nil {
		return peer.Network{}, err
	}
	return n, nil
}

// loopbackOf lets the hub's own node reach its hub without leaving the machine.
func loopbackOf(advertise string) string {
	_, port, _ := net.SplitHostPort(advertise)
	return net.JoinHostPort("127.0.0.1", port)
}

// JoinOptions says which network to join, as whom.
type JoinOptions struct {
	State string
	Name  string // "": the host's name up to its first dot
	Token token.Token

	Userspace bool // for Config.Userspace: the host's own routes do not matter
}

// Check reports in a line for the user an option that can never be right.
func (opt *JoinOptions) Check() error {
	if err := cert.ValidLabel(opt.Name); err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	return nil
}

// Join has a hub admit this machine. It either succeeds or leaves nothing
// behind, except that where a hub may have admitted us and its answer is lost,
// the keys wait beside the state directory for the next attempt, which then
// spends no second use of the token.
func Join(ctx context.Context, opt JoinOptions) (peer.Node, peer.Network, error) {
	fail := func(err error) (peer.Node, peer.Network, error) { return peer.Node{}, peer.Network{}, err }
	if err := opt.Check(); err != nil {
		return fail(err)
	}
	draft, err := state.Create(opt.State)
	if err != nil {
		return fail(err)
	}
	defer draft.Abort() // does nothing after Commit
	keys, again, err := draft.Begin(opt.Token.Root)
	if err != nil {
		return fail(err)
	}
	asked := again
	res, err := hub.Join(ctx, hub.JoinRequest{Token: opt.Token, Name: opt.Name, Keys: keys,
		Check: func(n peer.Network) error {
			if !opt.Userspace {
				if err := tun.CheckOverlap(n.CIDR4, n.CIDR6); err != nil {
					return err
				}
			}
			asked = true // from here on it may happen
			return nil
		}})
	if err != nil {
		if asked && !refused(err, again) {
			draft.Suspend()
		}
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			err = fmt.Errorf("node: no hub of the token (%s) has admitted this node in time; check that meshd runs well there, and try again", strings.Join(opt.Token.Hubs, ", "))
		}
		return fail(err)
	}
	for _, save := range []func() error{
		func() error { return draft.SaveChain(res.Chain) },
		func() error {
			return draft.SaveNode(state.Node{Name: res.Node.Name, Site: res.Node.Site, Network: res.Network.Name, Hubs: res.Hubs})
		},
		draft.Commit,
	} {
		if err := save(); err != nil {
			draft.Suspend() // we are admitted: the next attempt is free
			return fail(err)
		}
	}
	return res.Node, res.Network, nil
}

// refused reports whether an error says that no hub has admitted our keys: any
// refusal where they are new; where a hub may have admitted them earlier, only
// one that tells us to come with others.
func refused(err error, again bool) bool {
	reasons := []error{hub.ErrRevoked, hub.ErrRefused}
	if !again {
		reasons = append(reasons, hub.ErrTokenUnknown, hub.ErrTokenUsed, hub.ErrTokenExpired, hub.ErrTokenRevoked,
			hub.ErrNameTaken, hub.ErrFull, hub.ErrClock)
	}
	return slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(err, reason) })
}
