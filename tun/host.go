package tun

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	wgtun "golang.zx2c4.com/wireguard/tun"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Defaults and bounds of a Config.
const (
	DefaultName = "mesh0"
	DefaultMTU  = 1400
	minMTU      = 1280  // IPv6's least, RFC 8200 §5: the kernel takes IPv6 away below it
	maxMTU      = 65000 // bytes; what still fits a datagram once sealed and relayed
)

// Config says what the host is to look like.
type Config struct {
	Name         string       // of the TUN; DefaultName if empty
	MTU          int          // of the TUN, bytes; DefaultMTU if 0
	Addr4, Addr6 netip.Addr   // the node's virtual addresses, each in its CIDR
	CIDR4, CIDR6 netip.Prefix // the network; either family may be absent, address and CIDR
	StateDir     string       // where the journal lives; it must exist
	Log          *slog.Logger // nil: discard
}

func (c *Config) check() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		return fmt.Errorf("tun: an MTU of %d bytes is not between %d and %d", c.MTU, minMTU, maxMTU)
	}
	p := c.plan()
	if err := p.check(); err != nil {
		return fmt.Errorf("tun: %w", err)
	}
	return nil
}

func (c *Config) plan() plan {
	return plan{Tun: c.Name, Addr4: c.Addr4, Addr6: c.Addr6, CIDR4: c.CIDR4, CIDR6: c.CIDR6}
}

// Host is the overlay's presence on this host. Its methods may be called at the
// same time.
type Host struct {
	cfg     Config
	log     *slog.Logger
	lock    *os.File // held while we are the ones who change the host
	journal *journal
	dev     *kernelDevice
	index   int  // of the link
	fd      int  // of the TUN while Open works; then dev owns it
	ipv6    bool // the host can do IPv6

	firewalled bool // and nftables

	mu       sync.Mutex // guards what follows and the host's routes
	closed   bool
	ways     map[netip.Addr]way    // to peers that have a route of their own
	natives  map[netip.Addr]native // peers to which the LAN is open
	warnings []string
}

// Open makes the host part of the overlay: it creates the TUN, or adopts the
// one that a predecessor with this state directory left behind, and sets up what
// the package comment lists. Doing so again, after a crash at any instant, ends
// in the same state; where nothing changed, addresses and TCP connections
// survive. If it fails, a host that was clean is clean again; one on which a
// predecessor's TUN was adopted is left as the predecessor left it, to be
// adopted by the next attempt or removed by Restore.
//
// It refuses networks that overlap what the host already routes, as CheckOverlap
// does, but knows its own leftovers.
func Open(cfg Config) (*Host, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	lock, err := lockState(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, log: cfg.Log, lock: lock, fd: -1, ways: map[netip.Addr]way{}, natives: map[netip.Addr]native{}}
	if err := h.open(h.steps()); err != nil {
		lock.Close()
		return nil, err
	}
	h.log.Info("tun ready", "link", cfg.Name, "mtu", cfg.MTU, "addr4", cfg.Addr4, "addr6", cfg.Addr6)
	return h, nil
}

func (h *Host) open(steps []step) error {
	adopted, err := h.predecessor()
	if err != nil {
		return err
	}
	own := 0
	if adopted != nil {
		own = adopted.Attrs().Index
	} else if _, err := netlink.LinkByName(h.cfg.Name); err == nil {
		return errForeign(h.cfg.Name)
	}
	if err := checkOverlap(own, h.cfg.CIDR4, h.cfg.CIDR6); err != nil {
		return err
	}
	if h.fd, err = attach(h.cfg.Name, adopted == nil); err != nil {
		return err
	}
	if err := h.build(steps); err != nil {
		if h.fd >= 0 {
			unix.Close(h.fd)
		}
		if adopted == nil {
			_, undone := undo(h.journal, h.cfg.StateDir)
			err = oneline.Join(err, undone)
		}
		return err
	}
	return nil
}

// predecessor reads the journal and returns the link to adopt, if there is one
// and it was set up for the same addresses. What a predecessor with other
// addresses left is undone first. h.journal is set.
func (h *Host) predecessor() (netlink.Link, error) {
	fresh, err := newJournal(h.cfg.plan())
	if err != nil {
		return nil, err
	}
	h.journal = fresh
	old, err := readJournal(h.cfg.StateDir)
	if err != nil || old == nil || old.BootID != fresh.BootID {
		return nil, err
	}
	link, err := findLink(old)
	if err != nil {
		return nil, err
	}
	if old.plan == fresh.plan && (link == nil || link.Attrs().Name == h.cfg.Name) {
		h.journal = old // what is left of it keeps guarding while the rest is made
		return link, forgetNative(old)
	}
	changed, err := undo(old, h.cfg.StateDir)
	if err != nil {
		return nil, err
	}
	h.log.Info("predecessor's network undone", "changed", changed)
	return nil, nil
}

// step is one of Open's changes. It may be taken again.
type step struct {
	what string
	do   func() error
}

// steps lists Open's changes in order.
func (h *Host) steps() []step {
	return []step{
		{"firewall table", h.setFirewall}, // before there is anything to spoof
		{"unreachable route", h.setBackstop},
		{"link", h.setLink},
		{"addresses", h.setAddrs},
		{"routes", h.setRoutes},
		{"device", h.setDevice}, // last: it tells events that nobody reads yet
	}
}

// build takes the steps, once the journal is on disk.
func (h *Host) build(steps []step) error {
	if err := h.journal.write(h.cfg.StateDir); err != nil {
		return err
	}
	link, err := netlink.LinkByName(h.cfg.Name)
	if err != nil {
		return fmt.Errorf("tun: finding %s: %w", h.cfg.Name, err)
	}
	h.index = link.Attrs().Index
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("tun: setting the %s of %s: %w", s.what, h.cfg.Name, err)
		}
	}
	return nil
}

// setDevice hands the descriptor to wireguard-go.
func (h *Host) setDevice() error {
	f := os.NewFile(uintptr(h.fd), cloneDevice)
	h.fd = -1
	dev, err := wgtun.CreateTUNFromFile(f, h.cfg.MTU)
	if err != nil {
		f.Close()
		return err
	}
	if h.dev, err = newKernelDevice(dev); err != nil {
		dev.Close()
	}
	return err
}

// Device returns the TUN with its offloads: it moves batches, and segments of up
// to 64 KiB. Whoever runs it may close it; Host does so otherwise.
func (h *Host) Device() Device { return h.dev }

// Name returns the TUN's name.
func (h *Host) Name() string { return h.cfg.Name }

// Warnings lists what the host lacks and Open went on without, a line each.
func (h *Host) Warnings() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.warnings)
}

// warn is Open's: nobody else has h yet.
func (h *Host) warn(msg string, args ...any) {
	h.log.Warn(msg, args...)
	h.warnings = append(h.warnings, msg)
}

// Close takes everything out: the host is as it was before Open. After an error
// the journal is still there, and Restore does the rest. Closing twice, or after
// Detach, does nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	defer h.lock.Close()
	h.closeDevice()
	_, err := undo(h.journal, h.cfg.StateDir)
	return err
}

// Detach stops using the TUN and leaves link, addresses, routes, firewall and
// journal to a successor, who adopts them by Open. Until then, packets into the
// overlay are dropped and TCP connections wait.
func (h *Host) Detach() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	err := h.closeDevice()
	return oneline.Join(err, h.lock.Close())
}

// closeDevice returns when the device's goroutines have ended: they may be
// waiting to tell events that nobody reads. The device may be closed already.
func (h *Host) closeDevice() error {
	err := h.dev.Close()
	for range h.dev.Events() {
	}
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
