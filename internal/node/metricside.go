package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/node/metrics"
	"github.com/meshmpi/meshmpi/mpishim/exec"
	"golang.org/x/net/netutil"
)

// maxScrapers bounds the connections of those who ask for metrics, from wherever;
// one address has maxFromOne of them.
const maxScrapers = 64

// ParseMetrics turns --metrics into an address. Empty means that nothing listens,
// which is the zero value; without an address before the port it is every one.
func ParseMetrics(flag string) (netip.AddrPort, error) {
	if flag == "" {
		return netip.AddrPort{}, nil
	}
	if port, ok := strings.CutPrefix(flag, ":"); ok {
		if p, err := parsePort(port); err == nil {
			return netip.AddrPortFrom(netip.IPv6Unspecified(), p), nil
		}
	}
	a, err := netip.ParseAddrPort(flag)
	if err != nil || a.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("--metrics %q is not an address and port such as 127.0.0.1:7725", flag)
	}
	return a, nil
}

// openMetrics listens at the configured address, if there is one: at a virtual one
// once the overlay has come up on the host, at others before that, so that one which
// does not work changes nothing.
func (d *daemon) openMetrics(overlay bool) error {
	at := d.cfg.Metrics
	if !at.IsValid() || overlay != slices.Contains(d.id.self.Addrs(), at.Addr()) {
		return nil
	}
	ln, err := listenMetrics(at)
	if err != nil {
		return err
	}
	d.scrapers = ln
	d.onClose("the metrics' port", once(ln))
	return nil
}

// startMetrics serves metrics where openMetrics listens.
func (d *daemon) startMetrics(ctx context.Context) error {
	if d.scrapers == nil {
		return nil
	}
	ln := d.scrapers
	srv := &http.Server{
		Handler: metrics.Handler(d.snapshot, d.log), MaxHeaderBytes: maxAsk,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: 2 * idleTime,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	d.log.Info("metrics", "addr", ln.Addr())
	d.group.Go(func() error {
		if err := srv.Serve(netutil.LimitListener(&fairListener{Listener: ln}, maxScrapers)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("node: metrics: %w", err)
		}
		return nil
	})
	d.group.Go(func() error { // ends the server with the daemon
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

func listenMetrics(at netip.AddrPort) (net.Listener, error) {
	addr := at.String()
	if at.Addr() == netip.IPv6Unspecified() { // of either family, whichever there is
		addr = ":" + strconv.Itoa(int(at.Port()))
	}
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("node: metrics: TCP port %d of %s is in use; stop what listens there (ss -ltnp) or give --metrics another", at.Port(), at.Addr())
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("node: metrics: %s is no address of this host; give --metrics one that is (ip addr), such as 127.0.0.1:7725", at.Addr())
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("node: metrics: TCP port %d: %w; run meshd as root or give --metrics a port above 1023", at.Port(), syscall.EACCES)
	case err != nil:
		return nil, fmt.Errorf("node: metrics on %s: %w", addr, err)
	}
	return ln, nil
}

// snapshot is what metrics are read from.
func (d *daemon) snapshot(ctx context.Context) (*metrics.Snapshot, error) {
	status, err := d.status(ctx)
	if err != nil {
		return nil, err
	}
	s := &metrics.Snapshot{
		Status: status, Sites: siteList(status.Nodes, d.limits.all()), Shape: d.shape(),
		Asked: d.asked(d.sharers()), Meetings: d.jobs.book.Len(time.Now()), Drops: d.drops(status.Drops),
	}
	s.Programs = len(s.Shape.Programs)
	if d.shares != nil {
		x, err := d.shares.explain(ctx)
		if err != nil {
			return nil, err
		}
		s.Lending, s.Notices = x.links, x.notices
		s.Drops = append(s.Drops,
			metrics.Drop{Part: "lending", Reason: "stranger", Count: d.shares.strangers.Load()},
			metrics.Drop{Part: "lending", Reason: "unsent", Count: d.shares.unsent.Load()},
			metrics.Drop{Part: "lending", Reason: "stale", Count: s.Notices.Stale},
			metrics.Drop{Part: "lending", Reason: "refused", Count: s.Notices.Refused},
			metrics.Drop{Part: "lending", Reason: "no room", Count: s.Notices.Unsaid},
			metrics.Drop{Part: "measuring", Reason: "refused", Count: x.measuring.Refused},
			metrics.Drop{Part: "measuring", Reason: "no room", Count: x.measuring.Unsaid},
		)
	}
	if d.hub != nil {
		r := d.hub.relay.Stats()
		s.Relay = &r
	}
	sessions, err := exec.Sessions(d.cfg.State)
	s.Sessions = len(sessions)
	return s, err
}

// drops is what parts of this node have lost or refused, those included that the
// status counts.
func (d *daemon) drops(st api.Drops) []metrics.Drop {
	list := []metrics.Drop{
		{Part: "mesh", Reason: "events full", Count: st.Events},
		{Part: "mesh", Reason: "unsent", Count: st.Unsent},
		{Part: "mesh", Reason: "receive buffer full", Count: st.Overflowed},
		{Part: "mesh", Reason: "replayed", Count: st.Replayed},
		{Part: "mesh", Reason: "alien", Count: st.Alien},
		{Part: "mesh", Reason: "no owner", Count: st.NoOwner},
		{Part: "local socket", Reason: "too many", Count: st.Local},
		{Part: "hubs", Reason: "signals full", Count: d.links.client.Dropped()},
		{Part: "events", Reason: "slow reader", Count: d.events.lost()},
	}
	relays := d.links.relayStats()
	list = append(list,
		metrics.Drop{Part: "relay client", Reason: "unbound", Count: relays.Unbound},
		metrics.Drop{Part: "relay client", Reason: "unfit", Count: relays.Unfit},
		metrics.Drop{Part: "relay client", Reason: "unsent", Count: relays.Unsent},
		metrics.Drop{Part: "relay client", Reason: "refused", Count: relays.Refused},
	)
	if d.hints != nil {
		list = append(list, metrics.Drop{Part: "hints", Reason: "too many", Count: d.hints.Refused()})
	}
	if d.hub != nil {
		h := d.hub.Stats()
		list = append(list, metrics.Drop{Part: "hub", Reason: "too many strangers", Count: h.Refused},
			metrics.Drop{Part: "hub", Reason: "slow node", Count: h.Dropped})
	}
	for _, more := range d.counted {
		list = append(list, more()...)
	}
	return list
}
