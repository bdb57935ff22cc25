package lab

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is a machine of the lab: it has a name, a network, processes, shared
// memory and mounts of its own, and a process 1 that holds them. Programs are
// the machine's; /etc, /run, /dev/shm and /var/lib are the host's, and of these
// /var/lib/meshd alone outlives PowerOff.
type Host struct {
	Name  string
	Site  string
	Addr4 netip.Addr // on the site's LAN
	Addr6 netip.Addr // the global one; zero unless the site has IPv6

	lab  *Lab
	site *site
	dir  string // of logs and state, on the machine

	mu      sync.Mutex
	holder  *holder
	pid     int      // of process 1, on the machine
	pidfd   *os.File // of process 1; nil while the host is off
	net     *netspace
	running []*Cmd
	daemons int
	lines   int // in this life
}

// PID returns the machine's number of the host's process 1, 0 if the host is
// off; /proc/PID/ns has its namespaces.
func (h *Host) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pidfd == nil {
		return 0
	}
	return h.pid
}

// Do runs fn on a thread in the host's network, so that sockets it opens belong
// to the host; they may be used anywhere afterwards. Goroutines that fn starts
// are not in the host: dial addresses, not names.
func (h *Host) Do(fn func() error) error {
	h.mu.Lock()
	n := h.net
	h.mu.Unlock()
	if n == nil {
		return fmt.Errorf("lab: %s is powered off", h.Name)
	}
	return n.do(fn)
}

// Path returns where the machine sees a file of the host. It holds for the
// host's current life, and not across absolute symbolic links.
func (h *Host) Path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(h.PID()), "root", name)
}

// Dir returns the machine's directory of the host's logs; its subdirectory
// state is the host's /var/lib/meshd.
func (h *Host) Dir() string { return h.dir }

// Proc is a process of a host.
type Proc struct {
	PID  int // in the host
	Args []string
	real int
}

// Procs returns the host's processes but process 1, in no order.
func (h *Host) Procs() ([]Proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.PID()))
	if err != nil {
		return nil, fmt.Errorf("lab: processes of %s: %w", h.Name, err)
	}
	var procs []Proc
	for _, e := range entries {
		real, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// Processes may end while we look: what cannot be read is gone.
		if s, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err != nil || s != space {
			continue
		}
		status, _ := os.ReadFile("/proc/" + e.Name() + "/status")
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if pid := innermost(status); pid > 1 {
			procs = append(procs, Proc{PID: pid, real: real, Args: strings.Split(string(bytes.TrimRight(args, "\x00")), "\x00")})
		}
	}
	return procs, nil
}

// innermost returns a process's number in its own namespace: the last on the
// NSpid line of its status. A zombie has left its namespaces already.
func innermost(status []byte) int {
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" {
			pid, _ := strconv.Atoi(f[len(f)-1])
			return pid
		}
	}
	return 0
}

// Kill sends a signal to processes of the host, by their numbers there.
func (h *Host) Kill(sig syscall.Signal, pids ...int) error {
	procs, err := h.Procs()
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		i := slices.IndexFunc(procs, func(p Proc) bool { return p.PID == pid })
		err := error(unix.ESRCH)
		if i >= 0 {
			err = unix.Kill(procs[i].real, sig)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("lab: kill process %d of %s: %w", pid, h.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Unplug pulls the host's network cable.
func (h *Host) Unplug() error { return h.site.router.setUp(h.port(), false) }

// Plug puts it back.
func (h *Host) Plug() error {
	if err := h.site.router.setUp(h.port(), true); err != nil {
		return err
	}
	return h.site.router.settle(h.port())
}

// port is the host's interface on the router's switch.
func (h *Host) port() string { return h.Name }

// PowerOff ends the host as a power failure does: every process is killed, the
// network is gone; only /var/lib/meshd stays. Boot starts it again.
func (h *Host) PowerOff() error {
	h.mu.Lock()
	if h.pidfd == nil {
		h.mu.Unlock()
		return nil
	}
	running := slices.Clone(h.running)
	h.pidfd.Close()
	h.net.close()
	h.pidfd, h.net, h.lines = nil, nil, 0
	h.mu.Unlock()

	// The kernel would remove the cable only when it gets round to it.
	unplugged := h.site.router.remove(h.port())
	h.holder.kill()
	// Process 1 is not gone before every other is reaped, and those we
	// started only we can reap.
	for _, c := range running {
		_ = c.Wait()
	}
	if err := errors.Join(unplugged, h.holder.end()); err != nil {
		return fmt.Errorf("lab: power off %s: %w", h.Name, err)
	}
	return nil
}

// Boot starts the host after New made it or PowerOff ended it, with the
// addresses it had.
func (h *Host) Boot() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pidfd != nil {
		return fmt.Errorf("lab: %s runs already", h.Name)
	}
	if err := h.boot(); err != nil {
		return fmt.Errorf("lab: boot %s: %w", h.Name, err)
	}
	return nil
}

// boot is called with mu held.
func (h *Host) boot() (err error) {
	state := filepath.Join(h.dir, "state")
	if err := os.MkdirAll(state, 0o711); err != nil {
		return err
	}
	p := h.site.plan
	h.holder, err = startHolder(holderConfig{
		Hostname:   h.Name,
		Hosts:      fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", h.Addr4, h.Name),
		Resolv:     fmt.Sprintf("nameserver %s\n", p.lanAddr(1)),
		State:      state,
		PrivateTmp: h.lab.cfg.PrivateTmp,
	})
	if err != nil {
		return err
	}
	if err := h.holder.wait(); err != nil {
		return err
	}
	pid := h.holder.cmd.Process.Pid
	if h.net, err = openNetspace(h.Name, pid); err == nil {
		err = h.connect()
	}
	fd := -1
	if err == nil {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		h.net.close()
		h.net = nil
		return errors.Join(err, h.holder.end())
	}
	h.pid, h.pidfd = pid, os.NewFile(uintptr(fd), "pidfd of "+h.Name)
	return nil
}

// connect joins the host to its LAN.
func (h *Host) connect() error {
	p, mtu := h.site.plan, h.site.lanMTU()
	if err := h.net.quiet(); err != nil {
		return err
	}
	if err := h.net.up("lo"); err != nil {
		return err
	}
	if err := cable(h.site.router, h.port(), h.net, "eth0", mtu); err != nil {
		return err
	}
	if err := h.site.router.plug(h.port(), "lan"); err != nil {
		return err
	}
	if err := h.site.router.up(h.port()); err != nil {
		return err
	}
	addrs := []netip.Prefix{netip.PrefixFrom(h.Addr4, p.lan.Bits())}
	if h.Addr6.IsValid() {
		addrs = append(addrs, netip.PrefixFrom(h.Addr6, 64))
	}
	if err := h.net.address("eth0", addrs...); err != nil {
		return err
	}
	return firstError(
		func() error { return h.net.route(netip.Prefix{}, p.lanAddr(1)) },
		func() error { return h.net.route(netip.Prefix{}, p.lanAddr6(1)) },
		func() error { return h.net.settle("eth0") },
		func() error { return h.site.router.settle(h.port(), "lan") },
	)
}
