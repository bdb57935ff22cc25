package mesh

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/crypto/blake2s"
	"golang.zx2c4.com/wireguard/device"
)

// responseTo makes a response for m that looks right to whoever does not open it.
func responseTo(m *Mesh, receiver, sender uint32, ephemeral byte) []byte {
	pkt := make([]byte, device.MessageResponseSize)
	pkt[0] = device.MessageResponseType
	binary.LittleEndian.PutUint32(pkt[respSender:], sender)
	binary.LittleEndian.PutUint32(pkt[respReceiver:], receiver)
	pkt[respEphemeral] = ephemeral
	h, _ := blake2s.New128(m.open.mac1Key[:])
	h.Write(pkt[:respMAC1])
	h.Sum(pkt[:respMAC1])
	return pkt
}

// initiate has the loop believe that WireGuard has sent an initiation.
func initiate(m *Mesh, r *remote, sender uint32) {
	pkt := make([]byte, device.MessageInitiationSize)
	pkt[0] = device.MessageInitiationType
	binary.LittleEndian.PutUint32(pkt[4:], sender)
	m.initiated(r.ep, pkt)
	m.drain()
}

// TestResponsePassesOnce: WireGuard gets one copy of what answers an initiation, and
// the loop hears of it, whatever was changed in the others that needs no key; and none
// once another initiation has taken its place. Anybody who knows a node's public key
// can make what looks right.
func TestResponsePassesOnce(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	r := m.configure(time.Now(), a.ID)
	initiate(m, r, 77)
	forged, genuine := responseTo(m, 77, 5, 1), responseTo(m, 77, 5, 2)
	with2 := append([]byte(nil), genuine...)
	with2[respMAC2] = 9
	for i, tc := range []struct {
		what string
		pkt  []byte
		want bool
	}{
		{"one to nobody", responseTo(m, 78, 5, 2), false},
		{"a forgery", forged, true},
		{"the response after it", genuine, true},
		{"a copy", genuine, false},
		{"one with a cookie's MAC", with2, false},
		{"one with another sender index", responseTo(m, 77, 6, 2), false},
	} {
		if got := m.answered(tc.pkt, &source{}); got != tc.want {
			t.Errorf("%d, %s: WireGuard gets it: %v, want %v", i, tc.what, got, tc.want)
		}
		if n := m.drain(); (n == 1) != tc.want || n > 1 {
			t.Errorf("%d, %s: the loop hears of it %d times", i, tc.what, n)
		}
		if answered := r.hello.pkt == nil; answered != (i > 0) {
			t.Errorf("%d, %s: it counts as an answer: %v", i, tc.what, answered)
		}
	}
	initiate(m, r, 80)
	if m.answered(responseTo(m, 77, 5, 3), &source{}) {
		t.Error("WireGuard gets what answers an initiation that another has replaced")
	}
	if !m.answered(responseTo(m, 80, 5, 3), &source{}) {
		t.Error("WireGuard does not get what answers the latest initiation")
	}
	m.forget(r)
	if n := len(m.waiting.by) + len(m.waiting.given); n != 0 {
		t.Errorf("%d things are still known of a peer that is forgotten", n)
	}
}

// TestDeniedResponseComesAgain: a response that WireGuard, under load, has refused
// with a cookie passes once more, at once if a copy has come meanwhile; a cookie for
// something else changes nothing.
func TestDeniedResponseComesAgain(t *testing.T) {
	m := idleMesh(t)
	a, _ := newIdentity(t, "a", 2)
	m.cfg.Directory.Apply(false, []peer.Record{{Node: a}})
	initiate(m, m.configure(time.Now(), a.ID), 77)
	var checker device.CookieChecker
	checker.Init(device.NoisePublicKey(m.cfg.Self.ID))
	from := &source{via: via{addr: netip.MustParseAddrPort("127.0.0.1:9")}}
	deny := func(pkt []byte) {
		t.Helper()
		reply, err := checker.CreateReply(pkt, binary.LittleEndian.Uint32(pkt[respSender:]), from.DstToBytes())
		if err != nil {
			t.Fatal(err)
		}
		cookie := make([]byte, 0, device.MessageCookieReplySize)
		cookie, _ = binary.Append(cookie, binary.LittleEndian, reply)
		_ = m.bind.Send([][]byte{cookie}, from)
	}
	genuine, other := responseTo(m, 77, 5, 2), responseTo(m, 99, 5, 3)
	if !m.answered(genuine, &source{}) {
		t.Fatal("WireGuard does not get the response")
	}
	if deny(genuine); !m.answered(genuine, &source{}) {
		t.Error("WireGuard does not get the response again that it has not looked into")
	}
	copied := append([]byte(nil), genuine...)
	copied[respMAC2] = 7 // its sender has a cookie of ours for that path
	if deny(other); m.answered(copied, from) {
		t.Error("WireGuard gets a copy although it has refused another message")
	}
	deny(genuine)
	if len(m.bind.inject) != 1 {
		t.Fatal("WireGuard does not get the copy that came while it had not refused the first")
	}
	if in := <-m.bind.inject; in.pkt[respMAC2] != 7 || in.from != from {
		t.Error("WireGuard gets something else than the copy")
	}
	if m.answered(genuine, &source{}) {
		t.Error("WireGuard gets another copy beside that")
	}
}

// TestResponseThatComesManyTimes: a network that multiplies datagrams makes no
// second session of a response: what is sent first arrives. (Given every copy,
// WireGuard loses it once in 200 times.)
func TestResponseThatComesManyTimes(t *testing.T) {
	for range 20 {
		na, ka := newIdentity(t, "a", 1)
		nb, kb := newIdentity(t, "b", 2)
		a, b := start(t, na, ka, 0, nil), start(t, nb, kb, 0, nil)
		between := multiply(t, b.addr(), 8)
		a.knows(peer.Record{Node: nb, Up: true, Advertise: between.String()})
		b.knows(peer.Record{Node: na, Up: true})
		a.tun.out <- packet(na.Addr4, nb.Addr4, "hello")
		if !b.has("hello", time.After(helloLife-time.Second)) {
			t.Error("the first packet was lost")
		}
		a.stop()
		b.stop()
	}
}

// multiply forwards datagrams to an address, and the answers back, these many times each.
func multiply(t *testing.T, to netip.AddrPort, times int) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = c.Close(); <-ended })
	go func() {
		defer close(ended)
		var client netip.AddrPort
		buf := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if from != to {
				client = from
				_, _ = c.WriteToUDPAddrPort(buf[:n], to)
				continue
			}
			for range times {
				_, _ = c.WriteToUDPAddrPort(buf[:n], client)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}
