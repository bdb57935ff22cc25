package engine

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func FuzzHello(f *testing.F) {
	key := []byte("key")
	h := &hello{status: offered, count: 3, index: 2, proc: 7, arch: NativeArch(), grants: credit{1 << 20, 4096}, slots: 9, addr: 1 << 40}
	f.Add(h.encode(key))
	f.Add([]byte(helloMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= helloMac { // most would fail for want of proof
			b = append(b[:helloMac:helloMac], helloProof(b, key)...)
		}
		h, err := decodeHello(b, key)
		if err != nil {
			return
		}
		again, err := decodeHello(h.encode(key), key)
		if err != nil || *again != *h {
			t.Errorf("got %+v, %v, want %+v", again, err, h)
		}
		if _, err := decodeHello(b, []byte("other")); err == nil {
			t.Error("accepted under another key")
		}
	})
}

func FuzzCard(f *testing.F) {
	id, err := newIdentity([]byte("job"))
	if err != nil {
		f.Fatal(err)
	}
	c := id.card
	c.host, c.socket, c.addrs, c.hub = "00", "name", []string{"127.0.0.1:1", "[::1]:2"}, 9
	f.Add(c.encode())
	f.Add([]byte("mm1 u= k= a= j="))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCard(b)
		if err != nil {
			return
		}
		if _, err := parseCard(c.encode()); err != nil {
			t.Errorf("its encoding: %v", err)
		}
	})
}

// FuzzFrames gives a link what a peer might send, in pieces: an only one, or one of two
// of which the other may be lost.
func FuzzFrames(f *testing.F) {
	var b [longHeader]byte
	var all []byte
	for k := kindEager; k < kindEnd; k++ {
		h := header{kind: k, tag: 1}
		if k == kindEager || k == kindSync || k == kindPost {
			h.n = 3
		}
		n := h.encode(&b)
		all = append(append(all, b[:n]...), make([]byte, h.n)...)
		f.Add(append([]byte{}, all...), uint8(7))
		f.Add(append([]byte{}, all...), uint8(6))
	}
	lost := header{kind: kindLost, ctx: 1}
	n := lost.encode(&b)
	all = append([]byte{}, b[:n]...)
	for seq := range uint32(4) { // then a message of the lost link
		h := header{kind: kindEager, link: 1, n: 3, tag: 1, ctx: world, seq: seq}
		n := h.encode(&b)
		all = append(append(all, b[:n]...), make([]byte, h.n)...)
	}
	f.Add(all, uint8(7))
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		e, links := deaf(t, 1+int(piece%2))
		c := links[0]
		irecv(t, e, 1, 1, make([]byte, 2))
		e.Do(func(*Op) {
			var have []byte
			within := false
			for err := error(nil); len(in) > 0 && err == nil && !c.broken; {
				n := min(int(piece)+1, len(in))
				have = append(have, in[:n]...)
				in = in[n:]
				var took int
				took, within, err = e.incoming(c, have, within)
				have = have[took:]
				e.settle() // what follows from a loss
				if len(have) >= longHeader && err == nil {
					t.Fatalf("%d bytes were left", len(have))
				}
			}
			if m := e.messages.used(); m > 8 {
				t.Errorf("%d messages are kept", m)
			}
			e.breakLink(c, errViolation)
		})
	})
}

// deaf is an engine with a peer that takes everything, by so many links.
func deaf(t *testing.T, n int) (*Engine, []*conn) {
	t.Helper()
	e, err := New(Config{Size: 2, Hub: NewHub()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(t.Context()) }) // which waits for nobody: that context has ended
	e.OpenContext(world, []Proc{0, 1})
	var links []*conn
	for range n {
		links = append(links, &conn{e: e, peer: e.peers[1], wire: deafWire{}, piece: 100})
	}
	e.gate.lock()
	e.attach(e.peers[1], links, terms{eager: 100, credit: credit{1 << 12, 8}, theirs: credit{1 << 12, 8}})
	e.leave()
	return e, links
}

// deafWire takes everything.
type deafWire struct{}

func (deafWire) write(hdr, payload []byte, off int) (int, error) {
	return len(hdr) + len(payload) - off, nil
}
func (deafWire) poll(*conn) (bool, error) { return false, nil }
func (deafWire) close()                   {}

// FuzzRing reads a ring whose memory the other side has filled as it likes.
func FuzzRing(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	word := binary.LittleEndian.AppendUint64(nil, 1<<32|40)
	f.Add(word, uint64(3))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<32|1<<31), uint64(1<<63))
	f.Fuzz(func(t *testing.T, mem []byte, head uint64) {
		r := heapRing(16)
		copy(r.slots, mem)
		*r.head = head
		c, p := consumer{ring: r}, newProducer(r)
		for range 40 {
			frame, err := c.peek()
			if frame == nil || err != nil {
				break
			}
			if len(frame) > len(r.slots) {
				t.Fatalf("frame of %d bytes", len(frame))
			}
			c.advance(frame)
		}
		for range 40 {
			if ok, err := p.push(make([]byte, shortHeader), bytes.Repeat([]byte{1}, 100)); !ok || err != nil {
				break
			}
		}
	})
}
