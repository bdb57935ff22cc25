package mpishim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxRanks bounds a job.
const MaxRanks = 1 << 20

// Place is a host and how many ranks it gets, in the order of the ranks.
type Place struct {
	Host  Host
	Ranks int
}

// Put decides where n ranks go. want is the value of -H, "a,b:4" with slots
// after the colon; without it, all hosts that are up and neither hub nor relay
// only. A host has as many slots as cores unless -H says otherwise. The ranks of
// a site stay together, this node first, then its site; -H's own order wins.
// With oversubscribe, ranks beyond the slots are dealt out evenly.
func Put(hosts []Host, want string, n int, oversubscribe bool) ([]Place, error) {
	if n < 1 || n > MaxRanks {
		return nil, failf(CodeFailed, "%d ranks: between 1 and %d can run", n, MaxRanks)
	}
	places, err := candidates(hosts, want)
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return nil, failf(CodeFailed, "no node is up that runs programs; see meshctl status, or name nodes with -H")
	}
	slots := 0
	for _, p := range places {
		slots += p.Ranks
	}
	if n > slots && !oversubscribe {
		return nil, failf(CodeFailed, "%d ranks on %s with %s; give slots with -H NODE:SLOTS, or allow more with --oversubscribe", n, count(slots, "slot"), count(len(places), "node"))
	}
	left := n
	for i := range places {
		places[i].Ranks = min(places[i].Ranks, left)
		left -= places[i].Ranks
	}
	for i := range places { // left > 0 only when oversubscribed
		extra := left / (len(places) - i)
		places[i].Ranks += extra
		left -= extra
	}
	return slices.DeleteFunc(places, func(p Place) bool { return p.Ranks == 0 }), nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// candidates returns hosts in order with their slots in Ranks.
func candidates(hosts []Host, want string) ([]Place, error) {
	if want != "" {
		return named(hosts, want)
	}
	site := ""
	for _, h := range hosts {
		if h.Self {
			site = h.Site
		}
	}
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool { return !h.Up || h.Spare })
	last := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(hosts, func(a, b Host) int {
		return cmp.Or(
			cmp.Compare(last(a.Site == site), last(b.Site == site)),
			cmp.Compare(a.Site, b.Site),
			cmp.Compare(last(a.Self), last(b.Self)),
			cmp.Compare(a.Name, b.Name))
	})
	var places []Place
	for _, h := range hosts {
		places = append(places, Place{h, max(1, h.Cores)})
	}
	return places, nil
}

// named resolves the list of -H. A node that is named twice gets both counts.
func named(hosts []Host, want string) ([]Place, error) {
	var places []Place
	for item := range strings.SplitSeq(want, ",") {
		name, slots, err := slotsOf(strings.TrimSpace(item))
		if err != nil {
			return nil, failf(CodeFailed, "-H %s: %w", item, err)
		}
		i := slices.IndexFunc(hosts, func(h Host) bool { return isNamed(h, name) })
		switch {
		case i < 0:
			return nil, failf(CodeFailed, "no node %q in this network; it has %s", name, someNames(hosts))
		case !hosts[i].Up:
			return nil, failf(CodeFailed, "node %s is down; leave it out of -H, or see meshctl status", hosts[i].Name)
		case slots == 0:
			slots = max(1, hosts[i].Cores)
		}
		if j := slices.IndexFunc(places, func(p Place) bool { return p.Host.Name == hosts[i].Name }); j >= 0 {
			places[j].Ranks += slots
		} else {
			places = append(places, Place{hosts[i], slots})
		}
	}
	return places, nil
}

// slotsOf splits NODE:SLOTS, of which :SLOTS may lack: then slots is 0. An IPv6
// address stands in brackets, or has no slots.
func slotsOf(item string) (name string, slots int, err error) {
	if item == "" {
		return "", 0, errors.New("a node's name is missing between the commas")
	}
	if _, err := netip.ParseAddr(item); err == nil {
		return item, 0, nil
	}
	name, text, counted := item, "", false
	if i := strings.LastIndexByte(item, ':'); i > strings.LastIndexByte(item, ']') {
		name, text, counted = item[:i], item[i+1:], true
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if !counted {
		return name, 0, nil
	}
	if slots, err = strconv.Atoi(text); err != nil || slots < 1 || slots > MaxRanks {
		return "", 0, fmt.Errorf("%q is no number of slots", text)
	}
	return name, slots, nil
}

// isNamed accepts what DNS here calls a node, NAME or NAME.SITE, with the network's
// domain after it or without, and its addresses.
func isNamed(h Host, name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap() == h.Addr || a == h.Addr6
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	name = strings.TrimSuffix(name, "."+h.Domain)
	return name == h.Name || name == h.Name+"."+h.Site
}

func someNames(hosts []Host) string {
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + " and " + strconv.Itoa(len(names)-8) + " more"
	}
	return strings.Join(names, ", ")
}
