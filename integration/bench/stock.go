package bench

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// Stock WireGuard's place on the lab: its own interface, addresses and port.
const (
	stockModule = "golang.zx2c4.com/wireguard"
	stockLink   = "wg0"
	stockPort   = 51999
)

// stockAddrs are the two ends' virtual addresses.
var stockAddrs = [2]netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("10.99.0.2")}

// buildStock builds wireguard-go's own command, of the very version that meshd
// contains, from the module cache. It must run inside this module.
func buildStock(ctx context.Context, dir string) (string, error) {
	out := filepath.Join(dir, "wireguard-go")
	text, err := exec.CommandContext(ctx, "go", "build", "-o", out, stockModule).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w: %s", stockModule, err, strings.TrimSpace(string(text)))
	}
	return out, nil
}

// stockUp joins two hosts of one LAN by wireguard-go, as its manual says, with
// the MTU given.
func stockUp(ctx context.Context, command string, hosts [2]*lab.Host, mtu int) error {
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		k, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		keys[i] = k
	}
	for i, h := range hosts {
		peer := 1 - i
		cmd := h.Command(context.Background(), command, "-f", stockLink)
		cmd.Env = append(os.Environ(), "LOG_LEVEL=error")
		if _, err := h.StartCommand(cmd); err != nil { // ends with the lab
			return err
		}
		set := fmt.Sprintf("set=1\nprivate_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%s\nallowed_ip=%s/32\n\n",
			keys[i].Bytes(), stockPort, keys[peer].PublicKey().Bytes(),
			netip.AddrPortFrom(hosts[peer].Addr4, stockPort), stockAddrs[peer])
		if err := configureStock(ctx, h, set); err != nil {
			return fmt.Errorf("configure wireguard-go on %s: %w", h.Name, err)
		}
		for _, args := range [][]string{
			{"addr", "add", stockAddrs[i].String() + "/24", "dev", stockLink},
			{"link", "set", stockLink, "mtu", strconv.Itoa(mtu), "up"},
		} {
			if _, err := h.Run(ctx, "ip", args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// configureStock speaks WireGuard's cross-platform user-space protocol, once
// the socket is there.
func configureStock(ctx context.Context, h *lab.Host, set string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var conn net.Conn
	for {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, "unix", h.Path("/run/wireguard/"+stockLink+".sock"))
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte(set)); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if reply = strings.TrimSpace(reply); reply != "errno=0" {
		return errors.New(reply)
	}
	return nil
}

// linkMTU returns the MTU of a host's link.
func linkMTU(ctx context.Context, h *lab.Host, link string) (int, error) {
	out, err := h.Run(ctx, "ip", "-o", "link", "show", link)
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(out, " mtu ")
	mtu, _, _ := strings.Cut(after, " ")
	return strconv.Atoi(mtu)
}
