package tun

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// nativeSet is one of the two sets of who may pass over a LAN, by the chain that asks.
type nativeSet struct {
	*nftables.Set
	key func(peer netip.Addr, hop Hop) []byte
}

// Each part of a key fills whole registers of four bytes.
func paddedName(name string) []byte {
	b := make([]byte, ifNameLen)
	copy(b, name)
	return b
}

func nativeSets(t *nftables.Table) map[string]nativeSet {
	return map[string]nativeSet{
		"in": {&nftables.Set{Table: t, Name: "native_in", KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr, nftables.TypeIPAddr)},
			func(peer netip.Addr, hop Hop) []byte {
				return append(append(append(paddedName(hop.name), hop.mac[:]...), 0, 0), peer.AsSlice()...)
			}},
		"out": {&nftables.Set{Table: t, Name: "native_out", KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr)},
			func(peer netip.Addr, hop Hop) []byte { return append(paddedName(hop.name), peer.AsSlice()...) }},
	}
}

// of are the set's elements for some peers.
func (s nativeSet) of(open map[netip.Addr]native) (all []nftables.SetElement) {
	for peer, n := range open {
		all = append(all, nftables.SetElement{Key: s.key(peer, n.hop)})
	}
	return all
}

// letThrough lets packets between this node's address and a peer's pass over a LAN, or
// no longer.
func (h *Host) letThrough(peer netip.Addr, hop Hop, open bool) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	change := c.SetDeleteElements
	if open {
		change = c.SetAddElements
	}
	for _, s := range nativeSets(firewallTable(h.journal)) {
		if err := change(s.Set, s.of(map[netip.Addr]native{peer: {hop: hop}})); err != nil {
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
// peer for which it is open.
func acceptNative(j *journal, chain string) []expr.Any {
	const srcAt, dstAt = 12, 16 // RFC 791 §3.1
	name, own, theirs, reg := expr.MetaKeyIIFNAME, uint32(dstAt), uint32(srcAt), uint32(regThird)
	if chain == "out" {
		name, own, theirs, reg = expr.MetaKeyOIFNAME, srcAt, dstAt, regNext
	}
	e := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: own, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: j.Addr4.AsSlice()},
	}
	if chain == "in" {
		e = append(e,
			&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)},
			&expr.Payload{DestRegister: regNext, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6})
	}
	return append(e,
		&expr.Meta{Key: name, Register: regName},
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: theirs, Len: 4},
		&expr.Lookup{SourceRegister: regName, SetName: "native_" + chain},
		&expr.Verdict{Kind: expr.VerdictAccept},
	)
}
