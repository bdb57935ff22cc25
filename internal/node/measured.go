package node

import (
	"encoding/binary"
	"maps"

	"github.com/meshmpi/meshmpi/internal/rate"
	"github.com/meshmpi/meshmpi/shaper"
)

// measuredFile is what the node remembers of links that were measured, so that it
// begins there.
const measuredFile = "measured.json"

// measuredRates are what this site may send to others, by site, "" for all together,
// in bits per second, as they were found.
type measuredRates struct {
	Found map[string]int64 `json:"found"`
}

// loadMeasured returns what is remembered of links, by site.
func (d *daemon) loadMeasured() map[string]int64 {
	var m measuredRates
	if d.id.dir == nil || d.readCache(measuredFile, &m) != nil {
		return nil
	}
	maps.DeleteFunc(m.Found, func(_ string, r int64) bool { return rate.Check(r) != nil })
	return m.Found
}

// saveMeasured remembers what was found.
func (d *daemon) saveMeasured(found map[string]int64) {
	d.saved.put(measuredFile, func() error { return d.id.dir.SaveJSON(measuredFile, measuredRates{found}, 0o600) })
}

// noticesFirst lets the notices by which nodes share and measure links pass the queue
// of packets that wait to be sealed: they are few and say what holds now. They are
// spaced with the others.
type noticesFirst struct {
	*shaper.Flow
	self [4]byte // this node's virtual address
}

// Admit implements peer.Flow.
func (f noticesFirst) Admit(bufs [][]byte, sizes []int, offset int) {
	from := 0
	for i, b := range bufs {
		if isNotice(b[offset:offset+sizes[i]], f.self) {
			f.Flow.Admit(bufs[from:i], sizes[from:i], offset)
			f.Pass(sizes[i])
			from = i + 1
		}
	}
	f.Flow.Admit(bufs[from:], sizes[from:len(bufs)], offset)
}

// isNotice reports whether a packet is a UDP datagram in IPv4 from and to the port of
// notices, which at the node's virtual address only the daemon holds.
func isNotice(pkt []byte, self [4]byte) bool {
	const longest, udp = 1100, 17
	if len(pkt) < 28 || len(pkt) > longest || pkt[0] != 0x45 || pkt[9] != udp || pkt[6]&0x3f != 0 || pkt[7] != 0 || [4]byte(pkt[12:16]) != self {
		return false
	}
	return binary.BigEndian.Uint16(pkt[20:]) == SharesPort && binary.BigEndian.Uint16(pkt[22:]) == SharesPort
}
