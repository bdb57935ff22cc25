package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mpishim/exec"
	"golang.org/x/crypto/ssh"
)

// ExecSession is the hidden command by which meshd runs one session of the exec
// service in a process of its own.
const ExecSession = "exec-session"

// startExec serves remote commands on the virtual addresses.
func (d *daemon) startExec(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("node: own executable: %w", err)
	}
	cfg := exec.Config{
		HostKey: d.id.signKey(), Lookup: d.owner, Exe: exe, Args: []string{ExecSession},
		Policy:   d.policyNow,
		StateDir: d.cfg.State, Node: d.id.self.Name, Site: d.id.self.Site, Log: d.log, Nice: d.nice,
	}
	serve, stop := context.WithCancel(ctx)
	var serving sync.WaitGroup
	d.onLeave("running sessions", func() error { // their callers hear of it
		stop()
		serving.Wait() // so that none begins now
		if d.handedOver() {
			return nil
		}
		_, err := exec.EndSessions(d.cfg.State)
		return err
	})
	listeners, err := d.listenExec()
	for _, ln := range listeners {
		serving.Add(1)
		d.group.Go(func() error {
			defer serving.Done()
			return exec.Serve(serve, ln, cfg)
		})
	}
	return err
}

// listenExec opens the exec service's port on the virtual addresses. A host
// without IPv6 does without that one.
func (d *daemon) listenExec() (list []net.Listener, err error) {
	for _, a := range d.id.self.Addrs() {
		ln, err := listenVirtual(a, exec.Port, "exec service")
		switch {
		case err == nil:
			list = append(list, ln)
		case a.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
			d.log.Warn("no exec service on the IPv6 address", "addr", a, "err", err)
		default:
			return list, err
		}
	}
	return list, nil
}

// listenVirtual opens a port of ours on a virtual address.
func listenVirtual(a netip.Addr, port uint16, what string) (net.Listener, error) {
	addr := netip.AddrPortFrom(a, port)
	ln, err := net.Listen("tcp", addr.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("node: %s: TCP port %d of %s is in use; stop what listens there on every address (ss -ltnp)", what, port, a)
	}
	if err != nil {
		return nil, fmt.Errorf("node: %s on %s: %w", what, addr, err)
	}
	return ln, nil
}

// policy reads the policy as it is now.
func (d *daemon) policy() (exec.Policy, error) {
	p, err := exec.LoadPolicy(d.cfg.State)
	if err != nil {
		return exec.Policy{}, fmt.Errorf("node: %w; correct the file, or remove it for the default", err)
	}
	p.AllowRoot = p.AllowRoot || d.id.network.AllowRootExec
	return p, nil
}

// policyNow is the policy, or, where it cannot be read, one that refuses everybody: what
// was to be denied is not known then.
func (d *daemon) policyNow() exec.Policy {
	p, err := d.policy()
	if err != nil {
		d.log.Error("exec policy; everybody is refused", "err", err)
		return exec.NoOne()
	}
	return p
}

// owner returns the node that owns a virtual address, if it is in good standing.
func (d *daemon) owner(a netip.Addr) (peer.Node, bool) {
	a = a.Unmap()
	if a == d.id.self.Addr4 || a == d.id.self.Addr6 {
		return d.id.self, true
	}
	rec, ok := d.dir.ByAddr(a)
	return rec.Node, ok && time.Now().Before(rec.Node.NotAfter)
}

// split takes a node's name, in full or not, apart into its own and its site's, "" where
// that is not said.
func (d *daemon) split(name string) (label, site string) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	name = strings.TrimSuffix(name, "."+d.id.network.Domain)
	label, site, dotted := strings.Cut(name, ".")
	if dotted && site == "" {
		return name, "" // and nobody's
	}
	return label, site
}

// find returns the node that a user means by a name or an address.
func (d *daemon) find(name string) (peer.Record, error) {
	self := peer.Record{Node: d.id.self, Up: true}
	bare, site := d.split(name)
	if a, err := netip.ParseAddr(name); err == nil {
		if n, ok := d.owner(a); ok {
			if n.ID == d.id.self.ID {
				return self, nil
			}
			rec, _ := d.dir.ByID(n.ID)
			return rec, nil
		}
	} else if bare == d.id.self.Name && (site == "" || site == d.id.self.Site) {
		return self, nil
	} else if rec, ok := d.dir.ByName(bare); ok && (site == "" || site == rec.Node.Site) {
		return rec, nil
	}
	if d.uninformed() {
		return peer.Record{}, failure{http.StatusServiceUnavailable, fmt.Errorf("node %s knows no node %q of network %s, and no hub has told it of all yet; see the hubs in meshctl status", d.id.self.Name, name, d.id.network.Name)}
	}
	return peer.Record{}, fmt.Errorf("no node %q in network %s; it has %s", name, d.id.network.Name, d.someNames())
}

// someNames lists node names for an error message.
func (d *daemon) someNames() string {
	const most = 8
	names := []string{d.id.self.Name}
	for _, r := range d.dir.All() {
		if r.Node.ID != d.id.self.ID && !r.Revoked {
			names = append(names, r.Node.Name)
		}
	}
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// ticket vouches for a local user towards another node.
func (d *daemon) ticket(user string, rec peer.Record, req api.TicketRequest) (exec.Ticket, error) {
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(req.Key))
	if err != nil || len(rest) > 0 {
		return exec.Ticket{}, errors.New("the ticket request holds no SSH public key in authorized_keys form")
	}
	crt, err := exec.Vouch(d.id.signKey(), d.id.self.Name, user, key, time.Now())
	if err != nil {
		return exec.Ticket{}, err
	}
	hostKey, err := exec.HostKey(rec.Node.SignKey)
	if err != nil {
		return exec.Ticket{}, err
	}
	t := exec.Ticket{Node: rec.Node.Name, Site: rec.Node.Site, HostKey: hostKey, User: req.Login,
		Cert: string(ssh.MarshalAuthorizedKey(crt))}
	if t.User == "" {
		t.User = user
	}
	for _, a := range rec.Node.Addrs() {
		t.Addrs = append(t.Addrs, netip.AddrPortFrom(a, exec.Port))
	}
	return t, nil
}

// RunExecSession is the body of the hidden command ExecSession. It returns the
// process's exit code.
func RunExecSession() int {
	// The file descriptors are those that exec.Serve passes.
	if err := exec.Session(os.NewFile(3, "connection"), os.NewFile(4, "configuration")); err != nil {
		fmt.Fprintln(os.Stderr, "meshd:", err)
		return 1
	}
	return 0
}
