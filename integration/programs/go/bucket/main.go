// Command bucket paces what its host sends beyond the LAN by a token bucket on a Go
// timer, outside of the programs that send: what many would write first, for package
// bench to compare the pacer with.
//
//	bucket -rate BITS -via GATEWAY -dev eth0 -from ADDRESS
//
// The default route leads into a TUN device. At each tick of a time.Ticker as many
// packets are read from it as there are tokens for, and leave by a raw socket that
// another routing table serves. Nothing waits here: the device's queue (1000 packets)
// is the bucket's, and the kernel counts what it drops there. The bucket holds what
// falls due in 10 ms, since that is how late such a timer may be beside ranks that
// spin; with a smaller one the rate is not reached.
//
// It prints "ready" when the routes are set, and runs until it is killed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	device   = "bucket0"
	waiting  = 1000 // packets in the device's queue
	mark     = 0x62 // of packets that have passed
	table    = "98"
	tick     = time.Millisecond
	late     = 10 * time.Millisecond // of tokens that may gather
	ethernet = 14                    // bytes of its header, which take their time too
)

// bucket is how much may be sent.
type bucket struct {
	rate   float64 // bytes a second
	tokens float64 // bytes; below zero by one packet at most
	last   time.Time
}

// fill adds what has fallen due.
func (b *bucket) fill(now time.Time) {
	b.tokens = min(b.tokens+b.rate*now.Sub(b.last).Seconds(), b.rate*late.Seconds())
	b.last = now
}

func main() {
	var (
		rate = flag.Int64("rate", 0, "bits per second of Ethernet frames")
		via  = flag.String("via", "", "the gateway's address")
		dev  = flag.String("dev", "eth0", "the link to it")
		from = flag.String("from", "", "this host's address there")
	)
	flag.Parse()
	if err := run(*rate, *via, *dev, *from); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rate int64, via, dev, from string) error {
	if rate <= 0 {
		return errors.New("bucket: -rate must be above zero")
	}
	tun, err := openTUN()
	if err != nil {
		return err
	}
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("bucket: raw socket: %w", err)
	}
	if err := unix.SetsockoptInt(raw, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
		return fmt.Errorf("bucket: mark packets: %w", err)
	}
	for _, line := range []string{
		fmt.Sprintf("link set %s mtu 1500 txqueuelen %d up", device, waiting),
		fmt.Sprintf("route add default via %s dev %s table %s", via, dev, table),
		fmt.Sprintf("rule add fwmark %d lookup %s pref 90", mark, table),
		fmt.Sprintf("route replace default dev %s src %s", device, from),
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("bucket: ip %s: %w: %s", line, err, out)
		}
	}
	fmt.Println("ready")
	return serve(tun, raw, &bucket{rate: float64(rate) / 8, last: time.Now()})
}

// serve sends until reading fails.
func serve(tun, raw int, b *bucket) error {
	packet := make([]byte, 1<<16)
	for now := range time.NewTicker(tick).C {
		for b.fill(now); b.tokens > 0; {
			n, err := unix.Read(tun, packet)
			if err == unix.EAGAIN {
				break
			}
			if err != nil {
				return fmt.Errorf("bucket: read %s: %w", device, err)
			}
			if n < 20 || packet[0]>>4 != 4 {
				continue // IPv6 has no way out
			}
			to := unix.SockaddrInet4{Addr: netip.AddrFrom4([4]byte(packet[16:20])).As4()}
			// What cannot be sent is lost, as on any link.
			_ = unix.Sendto(raw, packet[:n], 0, &to)
			b.tokens -= float64(n + ethernet)
		}
	}
	return nil
}

// openTUN makes the device; reading does not block.
func openTUN() (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("bucket: /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(device)
	if err != nil {
		return 0, fmt.Errorf("bucket: %w", err)
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return 0, fmt.Errorf("bucket: make %s: %w", device, err)
	}
	return fd, nil
}
