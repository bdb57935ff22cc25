package dns

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	miekgdns "github.com/miekg/dns"
)

// A reverseZone is one virtual prefix under in-addr.arpa or ip6.arpa.
//
// A prefix that does not end between labels has no zone of its own name. We are
// then authoritative for each of the zones one label longer that it covers: a
// /20 is sixteen zones of a /24, a /26 is 64 names of one address each. (RFC
// 2317 delegates such prefixes through CNAMEs in a parent; here there is no
// parent that would delegate.) Whatever a label above covers more than the
// prefix is foreign and forwarded.
type reverseZone struct {
	prefix netip.Prefix
	suffix string // "in-addr.arpa." or "ip6.arpa."
	step   int    // bits of a label
	labels int    // of an apex, without the suffix
}

// The roots of reverse names (RFC 1035 §3.5, RFC 3596 §2.5).
const (
	suffix4 = "in-addr.arpa."
	suffix6 = "ip6.arpa."
)

// reverseZones checks the prefixes; invalid ones are left out.
func reverseZones(p4, p6 netip.Prefix) ([]reverseZone, error) {
	var zones []reverseZone
	if p4.IsValid() {
		if !p4.Addr().Is4() || p4.Bits() < 8 {
			return nil, fmt.Errorf("dns: %s cannot be the overlay's IPv4 prefix; use a /8 or longer", p4)
		}
		zones = append(zones, reverseZone{p4.Masked(), suffix4, 8, (p4.Bits() + 7) / 8})
	}
	if p6.IsValid() {
		if !p6.Addr().Is6() || p6.Bits() < 16 {
			return nil, fmt.Errorf("dns: %s cannot be the overlay's IPv6 prefix; use a /16 or longer", p6)
		}
		zones = append(zones, reverseZone{p6.Masked(), suffix6, 4, (p6.Bits() + 3) / 4})
	}
	return zones, nil
}

// match reports whether name, canonical, lies in one of z's zones, and which
// address and apex it means. addr is invalid where the name is shorter or
// longer than an address.
func (z reverseZone) match(name string) (addr netip.Addr, exact bool, apex string, ok bool) {
	if !miekgdns.IsSubDomain(z.suffix, name) {
		return netip.Addr{}, false, "", false
	}
	labels := miekgdns.SplitDomainName(strings.TrimSuffix(name, z.suffix))
	if len(labels) < z.labels {
		return netip.Addr{}, false, "", false
	}
	raw := make([]byte, z.prefix.Addr().BitLen()/8)
	full := len(raw) * 8 / z.step
	depth := 0 // labels understood, from the suffix on
	for depth < full && depth < len(labels) {
		v, valid := z.label(labels[len(labels)-1-depth])
		if !valid {
			break
		}
		bit := depth * z.step
		raw[bit/8] |= v << (8 - z.step - bit%8)
		depth++
	}
	addr, _ = netip.AddrFromSlice(raw)
	if depth < z.labels || !z.prefix.Contains(addr) {
		return netip.Addr{}, false, "", false
	}
	apex = strings.Join(labels[len(labels)-z.labels:], ".") + "." + z.suffix
	exact = depth == full && len(labels) == full
	if depth < len(labels) && !exact { // a label that is no digit, or one below an address
		return netip.Addr{}, false, apex, true
	}
	return addr, exact, apex, true
}

// label reads one label: a decimal octet or a hexadecimal nibble, as the
// standard spells it (no leading zeros).
func (z reverseZone) label(s string) (byte, bool) {
	base := 10
	if z.step == 4 {
		base = 16
	}
	if len(s) == 0 || len(s) > 3 || len(s) > 1 && (s[0] == '0' || z.step == 4) {
		return 0, false
	}
	v, err := strconv.ParseUint(s, base, z.step)
	return byte(v), err == nil
}

// names lists z's apexes without a final dot.
func (z reverseZone) names() []string {
	n := 1 << (z.labels*z.step - z.prefix.Bits())
	names := make([]string, 0, n)
	for i := range n {
		raw := z.prefix.Addr().AsSlice()
		bit := (z.labels - 1) * z.step
		raw[bit/8] |= byte(i) << (8 - z.step - bit%8)
		var b strings.Builder
		for l := z.labels - 1; l >= 0; l-- {
			v := raw[l*z.step/8] >> (8 - z.step - l*z.step%8)
			if z.step == 4 {
				b.WriteString(strconv.FormatUint(uint64(v&15), 16))
			} else {
				b.WriteString(strconv.Itoa(int(v)))
			}
			b.WriteByte('.')
		}
		names = append(names, b.String()+strings.TrimSuffix(z.suffix, "."))
	}
	return names
}
