package estimate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The wire format. All numbers are big-endian; the first byte is version and kind.
//
//	tally, receiving node to sender, of 17 bytes:
//	0     0x21
//	1–8   time of the receiver, µs since any moment
//	9–16  bytes that have ever come from the sender
//
//	report, node to leader of its site:
//	0     0x22
//	1     pools that follow
//	2–9   time of the node, µs since any moment
//	10–   pools of 32 bytes:
//	      0–3 name of the pool, 4–5 lag in ms, 6 flags: 1 more may have arrived, 7 zero,
//	      8–15 bytes ever sent to destinations that tell what arrives, 16–23 bytes
//	      that have arrived there, 24–31 bytes sent to others
//
//	verdict, leader to node:
//	0     0x23
//	1     pools that follow
//	2–9   time of the leader, µs
//	10–   pools of 16 bytes:
//	      0–3 name, 4–7 pace and 8–11 rate found, kbit/s, 12–15 how long ago it was
//	      measured, ms; 2³²−1: never
//
// A pace of 0 says that there is no limit.
const (
	kindTally   byte = 0x21
	kindReport  byte = 0x22
	kindVerdict byte = 0x23

	tallyLen   = 17
	headLen    = 10
	reportLen  = 32
	verdictLen = 16
	maxPools   = 30
	maxMessage = headLen + maxPools*reportLen

	flagVague = 1
	unsaid    = 1<<32 - 1
)

// MaxMessage is the length of the longest message, in bytes: it fits any path.
const MaxMessage = maxMessage

var errMessage = errors.New("estimate: not a message")

// Ours reports whether a datagram is of this package, by its first byte, where
// other messages of the site's nodes come by the same port.
func Ours(data []byte) bool {
	return len(data) > 0 && data[0] >= kindTally && data[0] <= kindVerdict
}

// AppendTally appends what a receiving node tells a sender: that by its clock,
// since any moment, it has had so many bytes from it.
func AppendTally(b []byte, now time.Duration, bytes int64) []byte {
	b = append(b, kindTally)
	b = binary.BigEndian.AppendUint64(b, uint64(now.Microseconds()))
	return binary.BigEndian.AppendUint64(b, uint64(bytes))
}

// told is a report's or a verdict's time and pools.
type told struct {
	at    time.Duration
	pools []poolTold
}

type poolTold struct {
	name  uint32
	lag   time.Duration // of a report, as are these:
	vague bool
	counters
	pace, found int64         // of a verdict, as is this:
	age         time.Duration // below 0: never measured
}

func (m told) appendReport(b []byte) []byte {
	b = m.appendHead(b, kindReport)
	for _, p := range m.pools {
		b = binary.BigEndian.AppendUint32(b, p.name)
		b = binary.BigEndian.AppendUint16(b, uint16(min(p.lag.Milliseconds(), 1<<16-1)))
		var flags byte
		if p.vague {
			flags = flagVague
		}
		b = append(b, flags, 0)
		for _, n := range [...]int64{p.sent, p.got, p.blind} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
	}
	return b
}

func (m told) appendVerdict(b []byte) []byte {
	b = m.appendHead(b, kindVerdict)
	for _, p := range m.pools {
		age := uint32(unsaid)
		if p.age >= 0 {
			age = uint32(min(p.age.Milliseconds(), unsaid-1))
		}
		for _, n := range [...]uint32{p.name, kbits(p.pace), kbits(p.found), age} {
			b = binary.BigEndian.AppendUint32(b, n)
		}
	}
	return b
}

func (m told) appendHead(b []byte, kind byte) []byte {
	b = append(b, kind, byte(len(m.pools)))
	return binary.BigEndian.AppendUint64(b, uint64(m.at.Microseconds()))
}

// kbits turns a rate into what the wire can say, upwards, so that it is not 0.
func kbits(rate int64) uint32 { return uint32(min((max(rate, 0)+999)/1000, 1<<32-1)) }

// parseTally reads a tally.
func parseTally(b []byte) (at time.Duration, bytes int64, err error) {
	if len(b) != tallyLen || b[0] != kindTally {
		return 0, 0, fmt.Errorf("%w: no tally, %d bytes", errMessage, len(b))
	}
	at, ok := micros(b[1:])
	n := binary.BigEndian.Uint64(b[9:])
	if !ok || n > maxCount {
		return 0, 0, fmt.Errorf("%w: a tally out of bounds", errMessage)
	}
	return at, int64(n), nil
}

// Bounds of times and counters: nothing computed with them overflows.
const (
	maxMicros = 1 << 52
	maxCount  = 1 << 60
)

func micros(b []byte) (time.Duration, bool) {
	n := binary.BigEndian.Uint64(b)
	return time.Duration(n) * time.Microsecond, n <= maxMicros
}

// parseTold reads a report or a verdict. It allocates no more than the bytes hold.
func parseTold(b []byte) (kind byte, m told, err error) {
	if len(b) < headLen || len(b) > maxMessage {
		return 0, m, fmt.Errorf("%w: %d bytes", errMessage, len(b))
	}
	size := map[byte]int{kindReport: reportLen, kindVerdict: verdictLen}[b[0]]
	count := int(b[1])
	at, ok := micros(b[2:])
	if size == 0 || !ok || len(b) != headLen+count*size {
		return 0, m, fmt.Errorf("%w: kind %#x, %d pools in %d bytes", errMessage, b[0], count, len(b))
	}
	m.at = at
	m.pools = make([]poolTold, count)
	for i := range m.pools {
		p := b[headLen+i*size:]
		if b[0] == kindVerdict {
			m.pools[i] = parseVerdict(p)
		} else if m.pools[i], err = parseReport(p); err != nil {
			return 0, m, err
		}
	}
	return b[0], m, nil
}

func parseReport(b []byte) (poolTold, error) {
	p := poolTold{
		name: binary.BigEndian.Uint32(b), lag: time.Duration(binary.BigEndian.Uint16(b[4:])) * time.Millisecond,
		vague: b[6]&flagVague != 0,
	}
	for i, n := range [...]*int64{&p.sent, &p.got, &p.blind} {
		v := binary.BigEndian.Uint64(b[8+8*i:])
		if v > maxCount {
			return p, fmt.Errorf("%w: a counter out of bounds", errMessage)
		}
		*n = int64(v)
	}
	return p, nil
}

func parseVerdict(b []byte) poolTold {
	p := poolTold{
		name: binary.BigEndian.Uint32(b), pace: int64(binary.BigEndian.Uint32(b[4:])) * 1000,
		found: int64(binary.BigEndian.Uint32(b[8:])) * 1000, age: -1,
	}
	if ms := binary.BigEndian.Uint32(b[12:]); ms != unsaid {
		p.age = time.Duration(ms) * time.Millisecond
	}
	return p
}

// poolName is a site's name on the wire: FNV-1a of its letters.
func poolName(site string) uint32 {
	h := uint32(2166136261)
	for i := range len(site) {
		h = (h ^ uint32(site[i])) * 16777619
	}
	return h
}
