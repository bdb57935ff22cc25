package tun

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/eventually"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childEnv makes the test binary a daemon that opens the host and waits to be killed.
const childEnv = "MESHMPI_TUN_TEST_STATE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if _, err := Open(testConfig(dir)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	goleak.VerifyTestMain(m)
}

var (
	own4  = netip.MustParseAddr("100.80.0.5")
	own6  = netip.MustParseAddr("fd80:1::5")
	peer4 = netip.MustParseAddr("100.80.0.9")
	peer6 = netip.MustParseAddr("fd80:1::9")
	cidr4 = netip.MustParsePrefix("100.80.0.0/16")
	cidr6 = netip.MustParsePrefix("fd80:1::/64")

	// The LAN that lan sets up: lan0 is ours, lan1 a neighbour's end of the wire.
	lan4  = netip.MustParseAddr("192.0.2.1")
	lan6  = netip.MustParseAddr("2001:db8::1")
	near4 = netip.MustParseAddr("192.0.2.7")
	near6 = netip.MustParseAddr("2001:db8::7")
)

func testConfig(dir string) Config {
	return Config{Addr4: own4, Addr6: own6, CIDR4: cidr4, CIDR6: cidr6, StateDir: dir}
}

// isolate gives the test's goroutine a thread in a network and mount namespace
// of its own. The thread ends with the goroutine.
func isolate(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Skipf("a network namespace needs root: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	run(t, "ip link set lo up")
}

// lan adds a wire to a neighbour, with a default route over it.
func lan(t *testing.T) {
	t.Helper()
	for _, c := range []string{
		"ip link add lan0 type veth peer name lan1",
		"ip link set lan0 addrgenmode none up",
		"ip link set lan1 addrgenmode none up",
		"ip addr add 192.0.2.1/24 dev lan0",
		"ip addr add 2001:db8::1/64 dev lan0 nodad",
		"sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.lan0.rp_filter=0",
		"ip route add default via 192.0.2.7",
		"ip route add default via 2001:db8::7",
	} {
		run(t, c)
	}
	eventually.Holds(t, "the kernel has made its addresses and links", func() bool { // the kernel finishes in its own time
		return strings.Contains(run(t, "ip -6 route show table local"), "local 2001:db8::1 dev lan0") &&
			strings.Count(run(t, "ip link"), "state UP") == 2
	})
	mac := hardwareAddr(t, "lan1").String()
	run(t, "ip neigh add 192.0.2.7 lladdr "+mac+" dev lan0")
	run(t, "ip neigh add 2001:db8::7 lladdr "+mac+" dev lan0")
}

func hardwareAddr(t *testing.T, name string) net.HardwareAddr {
	t.Helper()
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return ifi.HardwareAddr
}

func run(t *testing.T, command string) string {
	t.Helper()
	f := strings.Fields(command)
	out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// routes are those of the main tables. Whether a TUN that no process holds
// counts as down is left out: the kernel says so only after a while.
func routes(t *testing.T) string {
	t.Helper()
	return strings.ReplaceAll(run(t, "ip route")+run(t, "ip -6 route"), "linkdown ", "")
}

// snapshot is everything of the host that Open may touch.
func snapshot(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, c := range []string{
		"ip -d link", "ip addr", "ip -4 route show table all", "ip -6 route show table all",
		"ip -4 rule", "ip -6 rule", "nft list ruleset", "sysctl -a -e -r ^net\\.",
	} {
		fmt.Fprintf(&b, "# %s\n", c)
		for line := range strings.Lines(run(t, c)) {
			if !strings.Contains(line, "stable_secret") { // unreadable, and says so on stderr
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

func sameSnapshot(t *testing.T, before string) {
	t.Helper()
	after := snapshot(t)
	if after == before {
		return
	}
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	for line, n := range count {
		if n != 0 {
			t.Errorf("host changed (%+d): %s", n, line)
		}
	}
}

// detached waits for the kernel to notice that nobody is attached to the TUN,
// which it does within a second.
func detached(t *testing.T) {
	t.Helper()
	eventually.Holds(t, "the kernel sees the TUN detached", func() bool { return strings.Contains(run(t, "ip -4 route"), "linkdown") })
}

// startChild runs a daemon in a process of its own, in this namespace.
func startChild(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("the child says %q", line)
	}
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// udp builds a UDP packet of either family (RFC 768).
func udp(src, dst netip.Addr, port uint16, payload string) []byte {
	u := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(u[0:], 7)
	binary.BigEndian.PutUint16(u[2:], port)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	u = append(u, payload...)
	pseudo := bytes.Join([][]byte{src.AsSlice(), dst.AsSlice(), {0, unix.IPPROTO_UDP}, u[4:6]}, nil)
	binary.BigEndian.PutUint16(u[6:], sumOf(pseudo, u))
	if src.Is6() {
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 6<<4, unix.IPPROTO_UDP, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(u)))
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
		return append(ip, u...)
	}
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 4<<4|5, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(u)))
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], sumOf(ip))
	return append(ip, u...)
}

// sumOf is RFC 1071's; every part but the last has an even length.
func sumOf(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for i, c := range b {
			sum += uint32(c) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// wire is a packet socket on the neighbour's end.
type wire struct {
	t  *testing.T
	fd int
	to net.HardwareAddr
}

func newWire(t *testing.T) *wire {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	ifi, err := net.InterfaceByName("lan1")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}); err != nil {
		t.Fatal(err)
	}
	tv := unix.Timeval{Usec: 100_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return &wire{t, fd, hardwareAddr(t, "lan0")}
}

// send is the neighbour sending us a packet.
func (w *wire) send(pkt []byte) {
	w.t.Helper()
	frame := append([]byte(w.to), 2, 0, 0, 0, 0, 1, 0x08, 0x00)
	if pkt[0]>>4 == 6 {
		frame[12], frame[13] = 0x86, 0xdd
	}
	if _, err := unix.Write(w.fd, append(frame, pkt...)); err != nil {
		w.t.Fatal(err)
	}
}

// wants checks whether a packet with that payload, sent before, reaches the
// neighbour. A marker sent after it ends the wait for one that must not.
func (w *wire) wants(payload string, arrive bool) {
	w.t.Helper()
	marker := "marker after " + payload
	if err := sendUDP(w.t, near4, 9, marker); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		n, err := unix.Read(w.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			w.t.Fatal(err)
		case bytes.Contains(buf[:n], []byte(marker)):
			if !arrive {
				return
			}
		case bytes.Contains(buf[:n], []byte(payload)):
			if !arrive {
				w.t.Errorf("%q left by the LAN", payload)
			}
			return
		}
	}
	w.t.Errorf("on the LAN: neither %q nor the marker after it", payload)
}
