package lab

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
)

// egress is what a router lets out, besides what belongs to flows it let out before.
var egress = map[NAT]string{
	None:           `accept`,
	Firewalled:     `iifname "lan" accept`,
	PortPreserving: `iifname "lan" accept`,
	Symmetric:      `iifname "lan" accept`,
	Double:         `iifname "lan" accept`,
	UDPBlocked:     `iifname "lan" meta l4proto != udp accept`,
	HTTPSOnly:      `iifname "lan" tcp dport 443 accept`,
	SSHOnly:        `iifname "lan" tcp dport 22 accept`,
}

// routerRules returns the nftables rules of a site's router. Where it
// translates, "masquerading" is written as snat, since the public address is
// not always that of the outgoing interface. Port-preserving snat reuses a
// source's mapping for every destination; fully-random makes one for each.
func routerRules(p plan, nat NAT, forwards []Forward, hostAddr func(string) netip.Addr) string {
	var b strings.Builder
	b.WriteString("flush ruleset\ntable inet lab {\n chain forward {\n  type filter hook forward priority filter; policy drop;\n")
	if nat == UDPBlocked {
		b.WriteString("  meta l4proto udp drop\n")
	}
	fmt.Fprintf(&b, "  ct state established,related accept\n  ct status dnat accept\n  %s\n }\n", egress[nat])
	b.WriteString(` chain input {
  type filter hook input priority filter; policy drop;
  iifname { "lan", "lo" } accept
  ct state established,related accept
  meta l4proto { icmp, ipv6-icmp } accept
 }
`)
	if nat.translates() {
		b.WriteString(" chain prerouting {\n  type nat hook prerouting priority dstnat;\n")
		for _, f := range forwards {
			fmt.Fprintf(&b, "  iifname \"wan\" ip daddr %s %s dport %d-%d dnat ip to %s\n", p.public, f.Proto, f.First, f.Last, hostAddr(f.Host))
		}
		to, how := p.public, ""
		switch nat {
		case Symmetric:
			how = " fully-random"
		case Double:
			to = p.router
		}
		fmt.Fprintf(&b, " }\n chain postrouting {\n  type nat hook postrouting priority srcnat;\n")
		fmt.Fprintf(&b, "  oifname \"wan\" ip saddr %s snat ip to %s%s\n }\n", p.lan, to, how)
	}
	b.WriteString("}\n")
	return b.String()
}

// carrierRules returns the rules of the carrier in front of a site: those of a
// plain router, or of a second translator.
func carrierRules(p plan, nat NAT) string {
	if nat != Double {
		return "flush ruleset\n"
	}
	return fmt.Sprintf(`flush ruleset
table inet lab {
 chain forward {
  type filter hook forward priority filter; policy drop;
  ct state established,related accept
  iifname "down" accept
  ip6 version 6 accept
 }
 chain input {
  type filter hook input priority filter; policy drop;
  iifname { "down", "lo" } accept
  meta l4proto { icmp, ipv6-icmp } accept
 }
 chain postrouting {
  type nat hook postrouting priority srcnat;
  oifname "up" ip saddr %s/24 snat ip to %s
 }
}
`, p.carrierLAN, p.carrier)
}

// load replaces all rules of a namespace in one transaction and forgets its flows.
func (n *netspace) load(rules string) error {
	err := n.do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, firstLine(out))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lab: firewall of %s: %w (it needs nft, of the package nftables)", n.name, err)
	}
	return n.forget()
}

// forget flushes the connection tracking table.
func (n *netspace) forget() error {
	if err := n.nl.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("lab: flush the flows of %s: %w", n.name, err)
	}
	return nil
}

// firstLine is the first line of a program's output, for errors of one line.
func firstLine(out []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
