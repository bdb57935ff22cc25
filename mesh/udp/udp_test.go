package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func open2(t *testing.T) (a, b *Pair) {
	t.Helper()
	var err error
	if a, err = Listen(Ports{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if b, err = Listen(Ports{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a, b
}

// collect reads until it has want datagrams or a deadline passes.
func collect(t *testing.T, r *Reader, want int) (pkts [][]byte, from []netip.AddrPort) {
	t.Helper()
	bufs, sizes, addrs := make([][]byte, BatchSize), make([]int, BatchSize), make([]netip.AddrPort, BatchSize)
	for i := range bufs {
		bufs[i] = make([]byte, 65535)
	}
	if err := r.s.conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for len(pkts) < want {
		n, err := r.Read(bufs, sizes, addrs)
		if err != nil {
			t.Fatalf("read after %d of %d datagrams: %v", len(pkts), want, err)
		}
		for i := range n {
			pkts = append(pkts, bytes.Clone(bufs[i][:sizes[i]]))
			from = append(from, addrs[i])
		}
	}
	return pkts, from
}

// TestBatchesArriveWhole sends batches of every shape that coalescing treats
// differently and wants each datagram back, in order and with its own bounds.
func TestBatchesArriveWhole(t *testing.T) {
	for _, lo := range []string{"127.0.0.1", "::1"} {
		for name, sizes := range map[string][]int{
			"one":              {1},
			"equal":            repeat(1200, 100),
			"full batch":       repeat(40, BatchSize),
			"shorter tail":     append(repeat(1400, 9), 200),
			"longer after":     {100, 1400, 1400, 100, 100, 1400},
			"beyond one joint": repeat(1448, 64),
			"large":            {9000, 9000, 9000},
		} {
			t.Run(fmt.Sprintf("%s/%s", lo, name), func(t *testing.T) {
				a, b := open2(t)
				var sent [][]byte
				for i, n := range sizes {
					p := make([]byte, n, 65535)
					for j := range p {
						p[j] = byte(i + j)
					}
					sent = append(sent, p)
				}
				want := make([][]byte, len(sent))
				for i := range sent {
					want[i] = bytes.Clone(sent[i])
				}
				if err := a.Send(sent, netip.AddrPortFrom(netip.MustParseAddr(lo), b.Port())); err != nil {
					t.Fatal(err)
				}
				r := b.Readers()[0]
				if lo == "::1" {
					r = b.Readers()[1]
				}
				got, from := collect(t, r, len(sent))
				for i := range want {
					if !bytes.Equal(got[i], want[i]) {
						t.Fatalf("datagram %d: got %d bytes, want %d or other content", i, len(got[i]), len(want[i]))
					}
					if from[i] != netip.AddrPortFrom(netip.MustParseAddr(lo), a.Port()) {
						t.Fatalf("datagram %d: from %v", i, from[i])
					}
				}
			})
		}
	}
}

// TestApartAreReadTogether: datagrams that the kernel has not joined are read by the
// dozen, not by as many as messages of 64 datagrams would fit the caller's buffers; and
// those of joined ones that do not fit are handed out by the next reads.
func TestApartAreReadTogether(t *testing.T) {
	a, b := open2(t)
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), b.Port())
	for i := range 2 * joinedBatch {
		if err := a.Send([][]byte{{byte(i)}}, to); err != nil {
			t.Fatal(err)
		}
	}
	r := b.Readers()[0]
	bufs, sizes, from := make([][]byte, BatchSize), make([]int, BatchSize), make([]netip.AddrPort, BatchSize)
	for i := range bufs {
		bufs[i] = make([]byte, 65535)
	}
	for got, reads := 0, 0; got < 2*joinedBatch; reads++ {
		if reads == 2 {
			t.Fatalf("%d of %d datagrams that were there have come by two reads", got, 2*joinedBatch)
		}
		n, err := r.Read(bufs, sizes, from)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if sizes[i] != 1 || bufs[i][0] != byte(got) {
				t.Fatalf("datagram %d is %v", got, bufs[i][:sizes[i]])
			}
			got++
		}
	}
	if r.room == nil {
		t.Skip("this kernel joins no datagrams")
	}
	data := make([]byte, 5*BatchSize/2)
	for i := range data {
		data[i] = byte(i)
	}
	r.rest, r.next = []part{{data, 2, to}}, 0
	for at := 0; at < len(data); {
		n, err := r.Read(bufs, sizes, from)
		if err != nil || n == 0 {
			t.Fatalf("%d datagrams and %v after %d bytes of %d", n, err, at, len(data))
		}
		for i := range n {
			if !bytes.Equal(bufs[i][:sizes[i]], data[at:at+2]) {
				t.Fatalf("at %d came %v", at, bufs[i][:sizes[i]])
			}
			at += 2
		}
	}
}

// TestJoinOverContiguousMemory is the relay's case: datagrams that lie back to
// back are joined without a byte changing.
func TestJoinOverContiguousMemory(t *testing.T) {
	mem := make([]byte, 30)
	for i := range mem {
		mem[i] = byte(i)
	}
	joined, run := join([][]byte{mem[0:10], mem[10:20:20], mem[20:25:30]})
	if run != 3 || !bytes.Equal(joined, mem[:25]) {
		t.Errorf("join = %d datagrams, %v; want 3 and the memory as it lies", run, joined)
	}
	for i := range mem {
		if mem[i] != byte(i) {
			t.Fatalf("byte %d changed", i)
		}
	}
	if _, run := join([][]byte{mem[0:10:10], mem[10:20]}); run != 1 {
		t.Errorf("joined beyond the first datagram's capacity")
	}
}

func TestTooLongIsDroppedAlone(t *testing.T) {
	a, b := open2(t)
	long, short := make([]byte, 65530), []byte("still here")
	if err := a.Send([][]byte{long, short}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), b.Port())); err == nil {
		t.Error("a datagram longer than UDP carries was sent")
	}
	if got, _ := collect(t, b.Readers()[0], 1); string(got[0]) != string(short) {
		t.Errorf("got %q, want %q", got[0], short)
	}
	if a.Dropped() == 0 {
		t.Error("nothing counted as dropped")
	}
}

// TestTooLongIsDroppedAloneOfMany: what does not fit the interface takes nothing with it
// of what would leave in one message, and is all that counts as dropped.
func TestTooLongIsDroppedAloneOfMany(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test, and its network namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("a network namespace needs root: %v", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "mtu", "1400", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a, b := open2(t)
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), b.Port())
	pkts := [][]byte{make([]byte, 1450, 65535), []byte("still here")}
	for range 50 {
		pkts = append(pkts, make([]byte, 1000, 65535))
	}
	pkts = append(pkts, make([]byte, 1450, 65535), make([]byte, 1450), []byte("and here"))
	if err := a.Send(pkts, to); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("datagrams longer than the interface takes: %v, want %v", err, unix.EMSGSIZE)
	}
	got, _ := collect(t, b.Readers()[0], 52)
	if first, last := string(got[0]), string(got[51]); first != "still here" || last != "and here" {
		t.Errorf("between %.20q and %.20q came the others", first, last)
	}
	if n := a.Dropped(); n != 3 {
		t.Errorf("%d count as dropped, want 3", n)
	}
}

func TestListen(t *testing.T) {
	a, err := Listen(Ports{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := Listen(Ports{a.Port(), a.Port()}); err == nil {
		t.Error("the same port opened twice")
	} else {
		t.Log(err)
	}
	if _, err := Listen(Ports{5, 4}); err == nil {
		t.Error("an empty range opened")
	}
	r := a.Readers()[0]
	done := make(chan error)
	go func() {
		_, err := r.Read(make([][]byte, BatchSize), make([]int, BatchSize), make([]netip.AddrPort, BatchSize))
		done <- err
	}()
	_ = a.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

// TestAnswersWhereAsked: what is sent to somebody comes from where he has sent to, batches
// and all, though the kernel would choose another address; not from one that is ours no
// longer.
func TestAnswersWhereAsked(t *testing.T) {
	a, b := open2(t)
	if err := b.AnswerWhereAsked(); err != nil {
		t.Fatal(err)
	}
	asks := func(to string) netip.AddrPort {
		t.Helper()
		at := netip.AddrPortFrom(netip.MustParseAddr(to), b.Port())
		i := 0
		if at.Addr().Is6() {
			i = 1
		}
		if err := a.Send([][]byte{[]byte("ask")}, at); err != nil {
			t.Skipf("%s: %v", to, err)
		}
		_, from := collect(t, b.Readers()[i], 1)
		batch := [][]byte{make([]byte, 1200, 4096), make([]byte, 1200), make([]byte, 700), make([]byte, 900)}
		if err := b.Send(batch, from[0]); err != nil {
			t.Fatal(err)
		}
		got, sources := collect(t, a.Readers()[i], len(batch))
		for j := range got {
			if len(got[j]) != len(batch[j]) || sources[j] != at {
				t.Errorf("asked at %v, part %d of %d bytes came from %v", at, j, len(got[j]), sources[j])
			}
		}
		return from[0]
	}
	to := asks("127.0.0.1")
	asks("127.0.0.2")
	asks("127.0.0.1")
	b.v4.homes.at[to] = netip.MustParseAddr("192.0.2.1") // it has gone
	if b.Send([][]byte{[]byte("lost")}, to) == nil || b.Send([][]byte{[]byte("found")}, to) != nil {
		t.Error("an address that has gone is not given up")
	}
	if got, _ := collect(t, a.Readers()[0], 1); string(got[0]) != "found" {
		t.Errorf("got %q", got)
	}
	for i := range maxHomes + 1 {
		b.v4.homes.note(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1), appendHome(nil, to.Addr()))
	}
	if n := len(b.v4.homes.at); n > maxHomes {
		t.Errorf("%d are remembered", n)
	}
	asks("::1")
}

// TestTooLongIsNoReasonToMove: what cannot be sent for its length alone does not change
// where answers come from.
func TestTooLongIsNoReasonToMove(t *testing.T) {
	a, b := open2(t)
	if err := b.AnswerWhereAsked(); err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), b.Port())
	if err := a.Send([][]byte{[]byte("ask")}, at); err != nil {
		t.Fatal(err)
	}
	_, from := collect(t, b.Readers()[0], 1)
	if err := b.Send([][]byte{make([]byte, 65530)}, from[0]); !errors.Is(err, unix.EMSGSIZE) {
		t.Fatalf("a datagram longer than UDP carries: %v", err)
	}
	if err := b.Send([][]byte{[]byte("answer")}, from[0]); err != nil {
		t.Fatal(err)
	}
	if _, sources := collect(t, a.Readers()[0], 1); sources[0] != at {
		t.Errorf("the answer came from %v, want %v", sources[0], at)
	}
}

// refusing is a socket whose interface towards one address cannot segment. It
// takes one message a call, as a kernel may.
type refusing struct {
	mover
	addr netip.Addr
	got  map[netip.Addr][]int // sizes of the messages sent
}

func (r *refusing) send(_ *call, ms []message, to netip.AddrPort) (int, error) {
	if to.Addr() == r.addr && len(ms[0].control) > 0 {
		return 0, unix.EIO
	}
	r.got[to.Addr()] = append(r.got[to.Addr()], len(ms[0].data))
	return 1, nil
}

// TestSegmentationIsRefusedForOne: an interface without checksum offload costs
// its own destinations the segmentation, nobody else, and not for ever; nothing
// is sent twice.
func TestSegmentationIsRefusedForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		conn := &refusing{addr: bad, got: map[netip.Addr][]int{}}
		p := &Pair{v4: &socket{mover: conn, gso: true}}
		p.v4.writers.New = func() any { return newWriter() }
		send := func(to netip.Addr) []int {
			t.Helper()
			conn.got[to] = nil
			var pkts [][]byte
			for _, n := range []int{50, 100, 100, 100} {
				pkts = append(pkts, make([]byte, n, 1000))
			}
			if err := p.Send(pkts, netip.AddrPortFrom(to, 9)); err != nil {
				t.Fatal(err)
			}
			return conn.got[to]
		}
		single, joined := []int{50, 100, 100, 100}, []int{50, 300}
		for range 2 {
			if got := send(bad); !slices.Equal(got, single) {
				t.Errorf("sent messages of %v bytes where segmentation is refused, want %v", got, single)
			}
			if got := send(good); !slices.Equal(got, joined) {
				t.Errorf("sent messages of %v bytes elsewhere, want %v", got, joined)
			}
		}
		conn.addr = netip.Addr{} // the route leads elsewhere now
		if got := send(bad); !slices.Equal(got, single) {
			t.Errorf("segmentation tried again at once: %v", got)
		}
		time.Sleep(plainFor)
		if got := send(bad); !slices.Equal(got, joined) {
			t.Errorf("segmentation not tried again: %v, want %v", got, joined)
		}
	})
}

// TestZones: a link-local address is the same whichever way it names its interface,
// and what comes from one is answered there.
func TestZones(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	number := strconv.Itoa(lo.Index)
	for zone, want := range map[string]string{"": "", "lo": number, number: number, "4294967295": "4294967295", "no such one": ""} {
		k := &kernel{is6: true}
		var name unix.RawSockaddrInet6
		to := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), 9)
		k.setAddress(&name, to)
		if got := k.address(&name); got != netip.AddrPortFrom(to.Addr().WithZone(want), 9) {
			t.Errorf("the address %v comes back as %v, want zone %q", to, got, want)
		}
	}
}

func repeat(n, times int) []int {
	s := make([]int, times)
	for i := range s {
		s[i] = n
	}
	return s
}

// FuzzParseControl: the kernel writes control messages, yet nothing there may panic.
func FuzzParseControl(f *testing.F) {
	f.Add(segmentControl(make([]byte, 0, 64), 1200))
	f.Add(appendHome(appendHome(nil, netip.IPv6Loopback()), netip.MustParseAddr("127.0.0.1")))
	f.Fuzz(func(t *testing.T, oob []byte) {
		homeIn(oob)
		if segment, _, _ := parseControl(oob); segment < 0 || segment > 65535 {
			t.Fatalf("segment size %d", segment)
		}
	})
}
