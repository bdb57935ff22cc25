package lab

import (
	"fmt"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// Picture draws the lab as it is now, one line for each host:
//
//	core ─┬─ hubs     public, none filtered ──── hub 198.18.101.10
//	      └─ alpha    …
func (l *Lab) Picture() string {
	var b strings.Builder
	for i, s := range l.sites {
		stem := "      ├─"
		switch {
		case len(l.sites) == 1:
			stem = "core ───"
		case i == 0:
			stem = "core ─┬─"
		case i == len(l.sites)-1:
			stem = "      └─"
		}
		s.mu.Lock()
		nat, link := s.NAT, s.WAN
		s.mu.Unlock()
		public := "public addresses"
		if addr, err := l.PublicAddr(s.Name); err == nil && addr.IsValid() {
			public = "seen as " + addr.String()
		}
		fmt.Fprintf(&b, "%s %-10s NAT: %s, %s; WAN: %s\n", stem, s.Name, nat, public, describe(link))
		trunk := "      │ "
		if i == len(l.sites)-1 {
			trunk = "        "
		}
		for j, h := range s.hosts {
			branch := "├─"
			if j == len(s.hosts)-1 {
				branch = "└─"
			}
			fmt.Fprintf(&b, "%s   %s %s\n", trunk, branch, h.describe())
		}
	}
	return b.String()
}

func (h *Host) describe() string {
	text := fmt.Sprintf("%-8s %s", h.Name, h.Addr4)
	if h.Addr6.IsValid() {
		text += " " + h.Addr6.String()
	}
	if h.PID() == 0 {
		text += " (off)"
	}
	return text
}

// describe says in a few words what a link does.
func describe(link wan.Link) string {
	if link.IsPlain() {
		return "plain"
	}
	up, down := describePipe(link.Up), describePipe(link.Down)
	if up == down {
		return up + " each way"
	}
	return "up " + up + ", down " + down
}

func describePipe(p wan.Pipe) string {
	var parts []string
	if p.Delay > 0 {
		parts = append(parts, p.Delay.Round(time.Microsecond).String())
	}
	if p.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g Mb/s", float64(p.Rate)/1e6))
	}
	if p.Queue > 0 {
		parts = append(parts, fmt.Sprintf("queue %d B", p.Queue))
	}
	if p.Loss > 0 {
		parts = append(parts, fmt.Sprintf("%g %% lost", p.Loss*100))
	}
	if p.BlackHole > 0 {
		parts = append(parts, fmt.Sprintf("swallows above %d B", p.BlackHole))
	}
	if len(parts) == 0 {
		return "plain"
	}
	return strings.Join(parts, " ")
}
