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

// loadMeasured returns what is remembered of a link, 0 for nothing.
func (d *daemon) loadMeasured() func(site string) int64 {
	var m measuredRates
	if d.id.dir == nil || d.readCache(measuredFile, &m) != nil {
		m.Found = nil
	}
	return func(site string) int64 {
		if r := m.Found[site]; rate.Check(r) == nil {
			return r
		}
		return 0
	}
}

// saveMeasured remembers what was found.
func (d *daemon) saveMeasured(found map[string]int64) {
	m := measuredRates{Found: maps.Clone(found)}
	d.saved.put(measuredFile, func() error { return d.id.dir.SaveJSON(measuredFile, m, 0o600) })
}

// noticesFirst lets the notices by which nodes share and measure links pass the queue
// of packets that wait to be sealed: they are few and say what holds now. They are
// spaced with the others.
type noticesFirst struct{ *shaper.Flow }

// Admit implements peer.Flow.
func (f noticesFirst) Admit(bufs [][]byte, sizes []int, offset int) {
	from := 0
	for i, b := range bufs {
		if isNotice(b[offset : offset+sizes[i]]) {
			f.Flow.Admit(bufs[from:i], sizes[from:i], offset)
			f.Pass(sizes[i])
			from = i + 1
		}
	}
	f.Flow.Admit(bufs[from:], sizes[from:len(bufs)], offset)
}

// isNotice reports whether a packet is a UDP datagram in IPv4 from and to the port of
// notices, which only the daemon holds.
func isNotice(pkt []byte) bool {
	const longest, udp = 1100, 17
	if len(pkt) < 28 || len(pkt) > longest || pkt[0] != 0x45 || pkt[9] != udp || pkt[6]&0x3f != 0 || pkt[7] != 0 {
		return false
	}
	return binary.BigEndian.Uint16(pkt[20:]) == SharesPort && binary.BigEndian.Uint16(pkt[22:]) == SharesPort
}
