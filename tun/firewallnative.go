package tun

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// nativeSet is a set of who may pass over a LAN: probes in, everything in, anything out.
type nativeSet struct {
	*nftables.Set
	name string // by which the rest of the package knows it
	key  func(peer netip.Addr, hop Hop) []byte
	has  func(native) bool
}

// Each part of a key fills whole registers of four bytes.
func paddedName(name string) []byte {
	b := make([]byte, ifNameLen)
	copy(b, name)
	return b
}

// nativeSets are the sets, always in the same order: a table that is put back is as it was.
func nativeSets(t *nftables.Table) []nativeSet {
	from := nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr, nftables.TypeIPAddr)
	fromKey := func(peer netip.Addr, hop Hop) []byte {
		return append(append(append(paddedName(hop.name), hop.mac[:]...), 0, 0), peer.AsSlice()...)
	}
	to := nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr)
	toKey := func(peer netip.Addr, hop Hop) []byte { return append(paddedName(hop.name), peer.AsSlice()...) }
	open := func(native) bool { return true }
	return []nativeSet{
		{&nftables.Set{Table: t, Name: "native_probe", KeyType: from}, "probe", fromKey, open},
		{&nftables.Set{Table: t, Name: "native_in", KeyType: from}, "in", fromKey, func(n native) bool { return n.admitted }},
		{&nftables.Set{Table: t, Name: "native_out", KeyType: to}, "out", toKey, open},
	}
}

// of are the set's elements for some peers.
func (s nativeSet) of(open map[netip.Addr]native) (all []nftables.SetElement) {
	for peer, n := range open {
		if s.has(n) {
			all = append(all, nftables.SetElement{Key: s.key(peer, n.hop)})
		}
	}
	return all
}

// letThrough puts a peer into some of the sets, or takes it out.
func (h *Host) letThrough(peer netip.Addr, hop Hop, open bool, sets ...string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	change := c.SetDeleteElements
	if open {
		change = c.SetAddElements
	}
	for _, s := range nativeSets(firewallTable(h.journal)) {
		if !slices.Contains(sets, s.name) {
			continue
		}
		if err := change(s.Set, []nftables.SetElement{{Key: s.key(peer, hop)}}); err != nil {
			return err
		}
	}
	return c.Flush()
}

// Where keys are put together: registers of four bytes, linux/netfilter/nf_tables.h.
const (
	regName  = 8           // NFT_REG32_00, an interface's name
	regNext  = regName + 4 // what follows it
	regThird = regNext + 2 // what follows a hardware address
)

// acceptNative accepts what passes over a LAN between this node's address and that of a
// peer in a set: probes alone if the set is theirs.
func acceptNative(j *journal, set string) []expr.Any {
	const srcAt, dstAt = 12, 16 // RFC 791 §3.1
	name, own, theirs, reg := expr.MetaKeyIIFNAME, uint32(dstAt), uint32(srcAt), uint32(regThird)
	if set == "out" {
		name, own, theirs, reg = expr.MetaKeyOIFNAME, srcAt, dstAt, regNext
	}
	e := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: own, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: j.Addr4.AsSlice()},
	}
	if set == "probe" {
		e = append(e,
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, // destination port
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, NativePort)})
	}
	if set != "out" {
		e = append(e,
			&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)},
			&expr.Payload{DestRegister: regNext, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6})
	}
	return append(e,
		&expr.Meta{Key: name, Register: regName},
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: theirs, Len: 4},
		&expr.Lookup{SourceRegister: regName, SetName: "native_" + set},
		&expr.Verdict{Kind: expr.VerdictAccept},
	)
}
