package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The table in nft's own words, for TUN mesh0:
//
//	table inet meshmpi_mesh0 {
//		chain owner_<mark> {}     # whose it is, for restore
//		set native_probe …               # like native_in, for probes alone
//		set native_in { type ifname . ether_addr . ipv4_addr; }   # peers over the LAN: see Native
//		set native_out { type ifname . ipv4_addr; }
//		chain in {
//			type filter hook prerouting priority raw; policy accept;
//			iif "lo" accept                  # by index, which renaming leaves
//			iif "mesh0" accept
//			iiftype ether ip daddr OWN iifname . ether saddr . ip saddr @native_in accept
//			… udp dport 7726 … @native_probe accept
//			ip saddr CIDR counter drop       # spoofed
//			ip daddr CIDR counter drop       # a neighbour reaching in
//			(the same for ip6)
//		}
//		chain out {
//			type filter hook postrouting priority raw; policy accept;
//			oif …                            # as above: leaks, our own and forwarded ones
//			ip saddr OWN oifname . ip daddr @native_out accept
//		}
//	}
//
// The hooks see a packet before connection tracking, NAT and anybody's accept;
// a drop is final. Packets between the host's own addresses pass through lo.

const (
	ifNameLen = 16 // bytes the kernel compares of an interface's name
	loopback  = 1  // lo's index in every network namespace, LOOPBACK_IFINDEX
)

func ownerChain(j *journal) string { return "owner_" + j.Owner }

func firewallTable(j *journal) *nftables.Table {
	return &nftables.Table{Name: j.table(), Family: nftables.TableFamilyINet}
}

// setFirewall puts our table in place of any by its name, in one transaction:
// there is no instant without it.
func (h *Host) setFirewall() error {
	err := replaceTable(h.journal, h.index, nil)
	if err != nil && noNFTables(err) {
		h.warn("no nftables in this kernel: neighbours on the LAN can spoof virtual addresses", "err", err)
		return nil
	}
	h.firewalled = err == nil
	return err
}

func replaceTable(j *journal, link int, open map[netip.Addr]native) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := firewallTable(j)
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	c.AddChain(&nftables.Chain{Name: ownerChain(j), Table: t})
	if j.CIDR4.IsValid() {
		for _, s := range nativeSets(t) {
			if err := c.AddSet(s.Set, s.of(open)); err != nil {
				return err
			}
		}
	}
	accept := nftables.ChainPolicyAccept
	for _, g := range guards(j, link) {
		chain := c.AddChain(&nftables.Chain{
			Name: g.chain, Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: g.hook, Priority: nftables.ChainPriorityRaw, Policy: &accept,
		})
		for _, exprs := range g.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs})
		}
	}
	return c.Flush()
}

// guard is a chain of ours with its rules.
type guard struct {
	chain string
	hook  *nftables.ChainHook
	rules [][]expr.Any
}

// guards are those of a TUN with that index.
func guards(j *journal, link int) (all []guard) {
	for _, side := range []struct {
		name   string
		hook   *nftables.ChainHook
		key    expr.MetaKey
		native []string
	}{
		{"in", nftables.ChainHookPrerouting, expr.MetaKeyIIF, []string{"in", "probe"}},
		{"out", nftables.ChainHookPostrouting, expr.MetaKeyOIF, []string{"out"}},
	} {
		g := guard{chain: side.name, hook: side.hook}
		for _, index := range []int{loopback, link} {
			g.rules = append(g.rules, acceptInterface(side.key, index))
		}
		if j.CIDR4.IsValid() {
			for _, set := range side.native {
				g.rules = append(g.rules, acceptNative(j, set))
			}
		}
		for _, n := range j.nets() {
			g.rules = append(g.rules, dropNet(n.cidr, false), dropNet(n.cidr, true))
		}
		all = append(all, g)
	}
	return all
}

func acceptInterface(key expr.MetaKey, index int) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, uint32(index))},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// dropNet drops packets from, or to, the network.
func dropNet(cidr netip.Prefix, dst bool) []expr.Any {
	proto, length, offset := byte(unix.NFPROTO_IPV4), uint32(4), uint32(12) // RFC 791 §3.1
	if cidr.Addr().Is6() {
		proto, length, offset = unix.NFPROTO_IPV6, 16, 8 // RFC 8200 §3
	}
	if dst {
		offset += length
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: ipNet(cidr).Mask, Xor: make([]byte, length)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: cidr.Addr().AsSlice()},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

// removeTable removes the table if it bears the journal's mark.
func removeTable(j *journal) (removed bool, err error) {
	switch there, err := hasTable(j); {
	case err != nil && noNFTables(err):
		return false, nil
	case err != nil || !there:
		return false, err
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	c.DelTable(firewallTable(j))
	if err := c.Flush(); err != nil {
		return false, fmt.Errorf("removing table inet %s: %w", j.table(), err)
	}
	return true, nil
}

// noNFTables tells the errors of a kernel without nftables, or without the part
// of it that we use.
func noNFTables(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.ENOENT, unix.EINVAL,
	}, func(e error) bool { return errors.Is(err, e) })
}
