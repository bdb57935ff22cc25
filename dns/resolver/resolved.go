package resolver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// controlTimeout bounds one call of resolvectl.
const controlTimeout = 5 * time.Second

// A control runs resolvectl with the given arguments. It stands between us and
// D-Bus, whose wire format is not worth a dependency for a few calls.
type control func(ctx context.Context, args ...string) error

var _ control = resolvectl

func resolvectl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "resolvectl", append([]string{"--no-pager"}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		said, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("resolvectl %s: %w: %.200s", strings.Join(args, " "), err, said)
	}
	return nil
}

// resolvedRuns reports whether systemd-resolved runs. Its directory stays when
// it stops, so its socket is tried (systemd 246 and later), then itself.
func resolvedRuns(ctx context.Context, root string, ctl control) bool {
	dir := filepath.Join(root, "run/systemd/resolve")
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	d := net.Dialer{Timeout: time.Second}
	if conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, "io.systemd.Resolve")); err == nil {
		conn.Close()
		return true
	}
	return ctl(ctx, "status") == nil
}

// stub reports whether a resolv.conf sends questions to systemd-resolved.
func stub(conf []byte) bool {
	return slices.ContainsFunc(parseServers(conf), func(a netip.Addr) bool {
		return a == netip.AddrFrom4([4]byte{127, 0, 0, 53}) || a == netip.AddrFrom4([4]byte{127, 0, 0, 54})
	})
}

// nssResolve reports whether programs ask systemd-resolved without resolv.conf.
func nssResolve(root string) bool {
	data, ok, err := read(filepath.Join(root, "etc/nsswitch.conf"))
	if err != nil || !ok {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if db, services, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(db) == "hosts" {
			return slices.Contains(strings.Fields(services), "resolve")
		}
	}
	return false
}

// setLink tells systemd-resolved to ask our server for our zones, over the
// link, and for nothing else. The host's wishes for the world outside (DNSSEC,
// TLS, multicast questions) make no sense there, and the first two would deny
// every name.
func setLink(ctx context.Context, ctl control, cfg Config, search []string) error {
	domains := append([]string{"domain", cfg.Link}, search...)
	for _, zone := range cfg.Routes {
		domains = append(domains, "~"+zone)
	}
	for _, args := range [][]string{
		{"dns", cfg.Link, cfg.Server.String()},
		domains,
		{"default-route", cfg.Link, "no"},
		{"dnssec", cfg.Link, "no"},
		{"dnsovertls", cfg.Link, "no"},
		{"llmnr", cfg.Link, "no"},
		{"mdns", cfg.Link, "no"},
	} {
		if err := ctl(ctx, args...); err != nil {
			return fmt.Errorf("resolver: tell systemd-resolved of %s: %w", cfg.Link, err)
		}
	}
	return nil
}

// linkSet reports whether systemd-resolved still has settings for link; it
// keeps them in a file named by the link's number.
func linkSet(root, link string) bool {
	iface, err := net.InterfaceByName(link)
	if err != nil {
		return true // nothing to set them for
	}
	_, err = os.Stat(filepath.Join(root, "run/systemd/resolve/netif", strconv.Itoa(iface.Index)))
	return err == nil
}

func linkExists(link string) bool {
	_, err := net.InterfaceByName(link)
	return err == nil
}
