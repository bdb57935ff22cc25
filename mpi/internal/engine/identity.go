package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net"
	"strconv"
	"strings"
	"unsafe"
)

// Arch says how a machine stores numbers. Peers convert when theirs differs.
type Arch uint32

// The bits of an Arch.
const (
	bigEndian Arch = 1 << 0
	int64Bits Arch = 1 << 1
	ieeeFloat Arch = 1 << 2
	knownArch Arch = 1 << 31 // so that no architecture is zero
)

// NativeArch is this machine's.
func NativeArch() Arch {
	a := knownArch | ieeeFloat
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) == 0 {
		a |= bigEndian
	}
	if bits.UintSize == 64 {
		a |= int64Bits
	}
	return a
}

// OtherOrder is the same architecture with the other byte order, for tests.
func (a Arch) OtherOrder() Arch { return a ^ bigEndian }

// uid is what a process is known by everywhere, at random.
type uid [16]byte

// identity is who this process is, and what it proves that with.
type identity struct {
	card card
	job  []byte
}

// card is what others need to connect to a process. As text it is
//
//	mm1 u=UID k=KEY a=ARCH j=JOB [b=HUB] [h=HOST s=SOCKET] [r=RAILS] [t=ADDRESS …]
//
// in one line: numbers in hexadecimal, addresses as host:port; so many of which
// are used side by side, the others instead of each other.
type card struct {
	uid    uid
	key    [16]byte // who shows it may connect
	arch   Arch
	job    [8]byte // of the secret's hash: whether it is the same job
	hub    uint64  // Hub of the Go process; zero: none
	host   string  // of the machine as seen from here; empty: no shared memory
	socket string  // abstract Unix socket
	addrs  []string
	rails  int // the first of addrs, which are used side by side; see rails.go
}

const (
	mostCard  = 900 // bytes of a card
	mostAddrs = 16
	cardMagic = "mm1"
)

func newIdentity(job []byte) (identity, error) {
	id := identity{job: job}
	if _, err := rand.Read(id.card.uid[:]); err != nil {
		return id, err
	}
	if _, err := rand.Read(id.card.key[:]); err != nil {
		return id, err
	}
	if len(job) > 0 {
		h := sha256.Sum256(append([]byte("meshmpi job "), job...))
		copy(id.card.job[:], h[:])
	}
	return id, nil
}

// encode writes the card, with as many addresses as there is room for.
func (c *card) encode() []byte {
	b := fmt.Appendf(nil, "%s u=%x k=%x a=%x j=%x", cardMagic, c.uid, c.key, uint32(c.arch), c.job)
	if c.hub != 0 {
		b = fmt.Appendf(b, " b=%x", c.hub)
	}
	if c.host != "" {
		b = fmt.Appendf(b, " h=%s s=%s", c.host, c.socket)
	}
	if c.rails > 1 {
		b = fmt.Appendf(b, " r=%x", c.rails)
	}
	for i, a := range c.addrs {
		if i == mostAddrs || len(b)+len(a)+3 > mostCard {
			break
		}
		b = append(append(b, " t="...), a...)
	}
	return b
}

// parseCard reads a card.
func parseCard(text []byte) (*card, error) {
	if len(text) > mostCard {
		return nil, fmt.Errorf("%w: %d bytes", ErrCard, len(text))
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 || fields[0] != cardMagic {
		return nil, fmt.Errorf("%w: it does not begin with %s", ErrCard, cardMagic)
	}
	c := &card{}
	var seen [256]bool
	for _, f := range fields[1:] {
		if len(f) < 3 || f[1] != '=' {
			return nil, fmt.Errorf("%w: field %q", ErrCard, f)
		}
		if seen[f[0]] && f[0] != 't' {
			return nil, fmt.Errorf("%w: two fields %q", ErrCard, f[:1])
		}
		seen[f[0]] = true
		if err := c.field(f[0], f[2:]); err != nil {
			return nil, fmt.Errorf("%w: field %q: %v", ErrCard, f, err)
		}
	}
	for _, k := range "ukaj" {
		if !seen[k] {
			return nil, fmt.Errorf("%w: no field %q", ErrCard, k)
		}
	}
	if seen['h'] != seen['s'] {
		return nil, fmt.Errorf("%w: a host without a socket, or a socket without a host", ErrCard)
	}
	return c, nil
}

// field takes one field of a card. Unknown ones are of a later version.
func (c *card) field(key byte, v string) (err error) {
	switch key {
	case 'u':
		err = unhex(c.uid[:], v)
	case 'k':
		err = unhex(c.key[:], v)
	case 'j':
		err = unhex(c.job[:], v)
	case 'a':
		var n uint64
		n, err = strconv.ParseUint(v, 16, 32)
		c.arch = Arch(n)
	case 'b':
		c.hub, err = strconv.ParseUint(v, 16, 64)
	case 'r':
		var n uint64
		if n, err = strconv.ParseUint(v, 16, 8); err == nil && n > mostAddrs {
			err = ErrCard
		}
		c.rails = int(n)
	case 'h':
		c.host = v
	case 's':
		if len(v) > 100 { // an address has room for 107
			err = ErrCard
		}
		c.socket = v
	case 't':
		if len(c.addrs) == mostAddrs {
			return ErrCard
		}
		_, _, err = net.SplitHostPort(v)
		c.addrs = append(c.addrs, v)
	}
	return err
}

func unhex(dst []byte, s string) error {
	if len(s) != 2*len(dst) {
		return hex.ErrLength
	}
	_, err := hex.Decode(dst, []byte(s))
	return err
}

// before orders processes, the same way everywhere.
func (u *uid) before(v *uid) bool {
	a, b := binary.BigEndian.Uint64(u[:]), binary.BigEndian.Uint64(v[:])
	if a != b {
		return a < b
	}
	return binary.BigEndian.Uint64(u[8:]) < binary.BigEndian.Uint64(v[8:])
}
