package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// hello is what the ends of a connection say first: who dials, what he offers,
// and then, in the same form, what he who was dialed answers. Numbers are
// little-endian.
//
//	  0 magic   8 bytes  "meshmpi" and the version
//	  8 status  uint8    offer, or the answer
//	  9 index   uint8    which connection of those offered together
//	 10 count   uint8    how many they are
//	 11 zero    uint8
//	 12 arch    uint32
//	 16 from    16 bytes who says this
//	 32 to      16 bytes and to whom
//	 48 proc    int32    from's number in its job
//	 52 bytes   uint32   ┐ the credit that from grants
//	 56 many    uint32   ┘
//	 60 slots   uint32   of each ring; of a connection the port for what goes ahead (ahead_linux.go), 0: there is none
//	 64 nonce   16 bytes of the offer
//	 80 job     8 bytes  of the hash of from's secret
//	 88 addr    uint64   ┐ where in from's memory the probe is, for whoever wants to see
//	 96 probe   16 bytes ┘ whether he can read it; addr of a connection: the word for its port
//	112 mac     32 bytes HMAC-SHA256 of what is before, under the key of the card
//	                     of who was dialed and the job's secret
type hello struct {
	status       status
	index, count uint8
	arch         Arch
	from, to     uid
	proc         Proc
	grants       credit
	slots        uint32
	nonce        [16]byte
	job          [8]byte
	addr         uint64
	probe        [16]byte
}

// status is what a hello is for.
type status uint8

const (
	offered   status = iota + 1
	agreed           // the connection is a link now
	notYet           // try again: who you are is not known here yet
	taken            // try again, unless you hear from us: we are connecting to you
	gone             // do not try again
	passing          // an offer to be neighbours in a group (group.go), not of a link
	statusEnd        // the first that is none
)

const (
	helloMagic = "meshmpi\x04"
	helloSize  = 144
	helloMac   = 112
)

// encode writes the hello and its proof.
func (h *hello) encode(key []byte) []byte {
	b := make([]byte, helloMac, helloSize)
	copy(b, helloMagic)
	b[8], b[9], b[10] = byte(h.status), h.index, h.count
	binary.LittleEndian.PutUint32(b[12:], uint32(h.arch))
	copy(b[16:], h.from[:])
	copy(b[32:], h.to[:])
	binary.LittleEndian.PutUint32(b[48:], uint32(h.proc))
	binary.LittleEndian.PutUint32(b[52:], uint32(h.grants.bytes))
	binary.LittleEndian.PutUint32(b[56:], uint32(h.grants.messages))
	binary.LittleEndian.PutUint32(b[60:], h.slots)
	copy(b[64:], h.nonce[:])
	copy(b[80:], h.job[:])
	binary.LittleEndian.PutUint64(b[88:], h.addr)
	copy(b[96:], h.probe[:])
	return append(b, helloProof(b, key)...)
}

func helloProof(b, key []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(b[:helloMac])
	return m.Sum(nil)
}

// decodeHello reads a hello, which is b as a whole, and checks its proof.
func decodeHello(b, key []byte) (*hello, error) {
	if len(b) != helloSize || string(b[:8]) != helloMagic {
		return nil, fmt.Errorf("%w: not a hello of this version", errViolation)
	}
	if !hmac.Equal(b[helloMac:], helloProof(b, key)) {
		return nil, fmt.Errorf("%w: hello without proof", errViolation)
	}
	h := &hello{status: status(b[8]), index: b[9], count: b[10]}
	h.arch = Arch(binary.LittleEndian.Uint32(b[12:]))
	copy(h.from[:], b[16:])
	copy(h.to[:], b[32:])
	h.proc = Proc(binary.LittleEndian.Uint32(b[48:]))
	h.grants.bytes = int(binary.LittleEndian.Uint32(b[52:]))
	h.grants.messages = int(binary.LittleEndian.Uint32(b[56:]))
	h.slots = binary.LittleEndian.Uint32(b[60:])
	copy(h.nonce[:], b[64:])
	copy(h.job[:], b[80:])
	h.addr = binary.LittleEndian.Uint64(b[88:])
	copy(h.probe[:], b[96:])
	if h.status == 0 || h.status >= statusEnd || h.count == 0 || h.count > mostLinks || h.index >= h.count {
		return nil, fmt.Errorf("%w: hello %d, %d of %d", errViolation, h.status, h.index, h.count)
	}
	return h, nil
}

// helloKey proves hellos to who made a card: that one has it.
func (e *Engine) helloKey(c *card) []byte {
	return c.key[:]
}

// offer begins a hello to who has a card.
func (e *Engine) offer(to uid, grants credit) *hello {
	return &hello{
		status: offered, count: 1, arch: e.cfg.Arch, from: e.me.card.uid, to: to, proc: e.self,
		grants: grants, job: e.me.card.job,
	}
}

// answer begins the answer to a hello.
func (e *Engine) answer(h *hello, grants credit) *hello {
	a := e.offer(h.from, grants)
	a.status, a.index, a.count, a.nonce = agreed, h.index, h.count, h.nonce
	return a
}

// heed checks the answer to an offer and says what it means.
func (h *hello) heed(a *hello) error {
	if a.from != h.to || a.to != h.from || a.nonce != h.nonce || a.index != h.index || a.status == offered || a.status == passing {
		return fmt.Errorf("%w: answer to something else", errViolation)
	}
	switch a.status {
	case notYet:
		return errNotYet{}
	case taken:
		return errTaken
	case gone:
		return errGoodbye
	}
	return nil
}
