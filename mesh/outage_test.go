package mesh

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// segment makes a TCP segment between two nodes.
func segment(from, to peer.Node, v6 bool, flags byte, data string) []byte {
	tcp := make([]byte, 20, 20+len(data))
	binary.BigEndian.PutUint16(tcp[0:], 4321)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], 0xdeadbeef)
	tcp[12], tcp[13] = 5<<4, flags
	tcp = append(tcp, data...)
	if v6 {
		p := make([]byte, 40, 40+len(tcp))
		p[0], p[6], p[7] = 0x60, 6, 64
		binary.BigEndian.PutUint16(p[4:], uint16(len(tcp)))
		copy(p[8:], from.Addr6.AsSlice())
		copy(p[24:], to.Addr6.AsSlice())
		return append(p, tcp...)
	}
	p := packet(from.Addr4, to.Addr4, string(tcp))
	p[9] = 6
	return p
}

// TestUnreachable: the message is whole, comes from whom the packet was for, and
// quotes what TCP knows its connection by; nothing else is answered.
func TestUnreachable(t *testing.T) {
	a, _ := newIdentity(t, "a", 1)
	b, _ := newIdentity(t, "b", 2)
	for _, v6 := range []bool{false, true} {
		pkt := segment(a, b, v6, 0x18, "data")
		got := unreachable([]byte("room"), pkt)
		if !bytes.HasPrefix(got, []byte("room")) {
			t.Fatal("what was there is gone")
		}
		got = got[4:]
		ip, from, to, sum := 20, got[12:16], got[16:20], internetSum(0, got[20:])
		wantFrom, wantTo, kind := b.Addr4.AsSlice(), a.Addr4.AsSlice(), []byte{3, 1}
		if v6 {
			ip, from, to = 40, got[8:24], got[24:40]
			sum = internetSum(uint32(len(got)-ip)+58, got[8:])
			wantFrom, wantTo, kind = b.Addr6.AsSlice(), a.Addr6.AsSlice(), []byte{1, 0}
		} else if internetSum(0, got[:20]) != 0 || int(binary.BigEndian.Uint16(got[2:])) != len(got) {
			t.Errorf("the header's sum or length is wrong: % x", got[:20])
		}
		if !bytes.Equal(from, wantFrom) || !bytes.Equal(to, wantTo) || sum != 0 || !bytes.Equal(got[ip:ip+2], kind) || !bytes.Equal(got[ip+8:], pkt[:ip+8]) {
			t.Errorf("IPv6 %v: from %v to %v, sum %#x, % x", v6, from, to, sum, got[ip:])
		}
		for what, pkt := range map[string][]byte{
			"a SYN": segment(a, b, v6, 0x02, "data"), "an acknowledgement": segment(a, b, v6, 0x10, ""), "nothing": nil,
			"half a header": pkt[:ip+10], "UDP": func() []byte {
				u := bytes.Clone(pkt)
				u[map[bool]int{false: 9, true: 6}[v6]] = 17
				return u
			}(),
		} {
			if got := unreachable(nil, pkt); len(got) != 0 {
				t.Errorf("IPv6 %v: %s is answered by % x", v6, what, got)
			}
		}
	}
}

// TestOutageIsTold: TCP hears that a peer is unreachable while no path answers, from
// a mesh that leads to a kernel, and no longer than that; of what it sent while that was
// not clear it hears when a path works again.
func TestOutageIsTold(t *testing.T) {
	m := idleMesh(t)
	tun := m.cfg.TUN.(*pipeTUN)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	now := time.Now()
	r := m.configure(now, a.ID)
	c := m.addDirect(now, r, otherAddr, told)
	told := func(want int, when string) {
		t.Helper()
		if n := len(tun.in); n != want {
			t.Errorf("%s TCP was told %d times, want %d", when, n, want)
		}
		for range len(tun.in) {
			<-tun.in
		}
	}
	send := func() {
		pkt := segment(m.cfg.Self, a, false, 0x18, "data")
		m.tun.pass([][]byte{pkt}, []int{len(pkt)}, 0)
	}
	answer := func() { m.ponged(now, r, probe{txid: r.paths.pinged(now, c)}) }
	silence := func(until func() bool) {
		for end := now.Add(2 * maxSilence); !until() && now.Before(end); now = now.Add(50 * time.Millisecond) {
			m.serve(now, r)
		}
	}
	m.serve(now, r)
	send()
	told(0, "through a stack that is no kernel's")
	m.cfg.Kernel = true
	send()
	told(reverts, "before a path answers")
	answer()
	told(reverts, "when one does")
	send()
	told(0, "with a path that works")
	silence(func() bool { return c.misses > 0 })
	send()
	m.ponged(now, r, probe{txid: c.pings[len(c.pings)-1].txid})
	told(0, "after one loss")
	silence(func() bool { return c.misses > 0 })
	send()
	send()
	silence(func() bool { return c.misses == doubtMisses })
	told(0, "in doubt")
	m.ponged(now, r, probe{txid: c.pings[len(c.pings)-1].txid})
	told(reverts, "when the path answers again")
	silence(func() bool { return c.state != up })
	send()
	told(reverts, "once the path is dead")
}

// FuzzUnreachable: whatever a packet is, so is the answer whole, and short.
func FuzzUnreachable(f *testing.F) {
	a, _ := newIdentity(f, "a", 1)
	b, _ := newIdentity(f, "b", 2)
	f.Add(segment(a, b, false, 0x18, "data"))
	f.Add(segment(a, b, true, 0x18, "data"))
	f.Add([]byte{0x4f})
	f.Fuzz(func(t *testing.T, pkt []byte) {
		if got := unreachable(nil, pkt); len(got) > 40+8+40+20+8 || len(got) > 0 && got[0]>>4 != pkt[0]>>4 {
			t.Fatalf("% x is answered by % x", pkt, got)
		}
	})
}
