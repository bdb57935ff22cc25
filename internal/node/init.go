package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

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
	network, err := opt.network()
	if err != nil {
		return fail(err)
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
	draft, err := state.Create(opt.State)
	if err != nil {
		return fail(err)
	}
	defer draft.Abort() // does nothing after Commit
	// The directory of the hub's files comes with the first of them.
	if err := errors.Join(draft.SaveRoot(root), draft.SaveIssuer(issuer)); err != nil {
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

// network turns the options into what the root certificate will say.
func (opt *InitOptions) network() (peer.Network, error) {
	if opt.Network == "" {
		opt.Network = "mesh"
	}
	if opt.Domain == "" {
		opt.Domain = opt.Network + ".internal"
	}
	for _, label := range []string{opt.Network, opt.Name, opt.Site} {
		if err := cert.ValidLabel(label); err != nil {
			return peer.Network{}, err
		}
	}
	host, port, err := net.SplitHostPort(opt.Advertise)
	if err != nil || host == "" || port == "" || advertisedPort(opt.Advertise) == 0 {
		return peer.Network{}, fmt.Errorf("--advertise %q is not HOST:PORT; say where other nodes reach this one, such as hub.example.org:51820", opt.Advertise)
	}
	n := peer.Network{Name: opt.Network, Domain: strings.ToLower(opt.Domain), AllowRootExec: opt.AllowRootExec}
	if opt.CIDR == "" {
		n.CIDR4, err = tun.PickCIDR4()
	} else if n.CIDR4, err = netip.ParsePrefix(opt.CIDR); err != nil {
		err = fmt.Errorf("--cidr %q is not an IPv4 prefix such as 100.80.0.0/16", opt.CIDR)
	} else {
		err = checkCIDR(n.CIDR4)
	}
	if err != nil {
		return peer.Network{}, err
	}
	if n.CIDR6, err = randomULA(); err != nil {
		return peer.Network{}, err
	}
	return n, nil
}

func checkCIDR(p netip.Prefix) error {
	if !p.Addr().Is4() || p.Bits() > 28 || p.Bits() < 8 || p.Masked() != p {
		return fmt.Errorf("--cidr %s must be an IPv4 network between /8 and /28, without host bits", p)
	}
	return tun.CheckOverlap(p)
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
}

// Join has a hub admit this machine. It either succeeds or leaves nothing
// behind, here; a token used up by a joiner that died after the hub's consent is
// spent, and the same name may then be taken again only with its key.
func Join(ctx context.Context, opt JoinOptions) (peer.Node, peer.Network, error) {
	fail := func(err error) (peer.Node, peer.Network, error) { return peer.Node{}, peer.Network{}, err }
	if err := cert.ValidLabel(opt.Name); err != nil {
		return fail(err)
	}
	draft, err := state.Create(opt.State)
	if err != nil {
		return fail(err)
	}
	defer draft.Abort() // does nothing after Commit
	keys, err := cert.NewKeys()
	if err != nil {
		return fail(err)
	}
	res, err := hub.Join(ctx, hub.JoinRequest{Token: opt.Token, Name: opt.Name, Keys: keys,
		Check: func(n peer.Network) error { return tun.CheckOverlap(n.CIDR4, n.CIDR6) }})
	if err != nil {
		return fail(err)
	}
	for _, save := range []func() error{
		func() error { return draft.SaveKeys(keys) },
		func() error { return draft.SaveChain(res.Chain) },
		func() error {
			return draft.SaveNode(state.Node{Name: res.Node.Name, Site: res.Node.Site, Network: res.Network.Name, Hubs: res.Hubs})
		},
		draft.Commit,
	} {
		if err := save(); err != nil {
			return fail(err)
		}
	}
	return res.Node, res.Network, nil
}
