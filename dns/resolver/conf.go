package resolver

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Limits of resolv.conf: ours on its size, glibc's on what it reads of it
// (resolv.conf(5): MAXNS, and MAXDNSRCH with 256 characters until glibc 2.26).
const (
	maxConf       = 64 << 10
	maxServers    = 3
	maxSearch     = 6
	maxSearchText = 255
)

// Our edit of a resolv.conf can be undone by looking at it alone. It is a block
// in front
//
//	# meshmpi: begin …
//	nameserver 127.77.0.53
//	search paris.mesh.internal mesh.internal example.org
//	# meshmpi: end
//
// and, before each line of the original that the block replaces, the prefix
// "#meshmpi: ". All other lines stay as they are.
const (
	beginMark = "# meshmpi: begin"
	beginLine = beginMark + ` (by meshd while it runs; "meshd restore" takes it away)`
	endLine   = "# meshmpi: end"
	prefix    = "#meshmpi: "
)

// An edit is what is to be put in front of a resolv.conf.
type edit struct {
	server netip.Addr // asked first
	search []string   // searched first
	host   string     // the host's own domain, searched where the file says nothing; or ""
}

// apply returns the edited form of orig, which holds no edit of ours.
func (e edit) apply(orig []byte) []byte {
	var head, body bytes.Buffer
	fmt.Fprintf(&head, "%s\n", beginLine)
	fmt.Fprintf(&head, "nameserver %s\n", e.server)
	servers := 1
	if len(parseServers(orig, netip.Addr{})) == 0 {
		// The resolver's default, which our line would take away.
		fmt.Fprintf(&head, "nameserver %s\n", implied)
		servers++
	}
	fmt.Fprintf(&head, "search %s\n", strings.Join(e.searchList(orig), " "))
	for line := range bytes.Lines(orig) {
		keyword, rest := split(line)
		replaced := marked(line)
		switch keyword {
		case "nameserver":
			addr, ok := parseServer(rest)
			if replaced = ok && (servers == maxServers || addr == e.server); ok && !replaced {
				servers++
			}
		case "search", "domain":
			replaced = true
		case "options":
			// rotate would ask the other servers for the overlay's names, and
			// believe them that there are none.
			words := strings.Fields(rest)
			if replaced = slices.Contains(words, "rotate"); replaced {
				words = slices.DeleteFunc(words, func(w string) bool { return w == "rotate" })
			}
			if replaced && len(words) > 0 {
				fmt.Fprintf(&head, "options %s\n", strings.Join(words, " "))
			}
		}
		if replaced {
			body.WriteString(prefix)
		}
		body.Write(line)
	}
	fmt.Fprintf(&head, "%s\n", endLine)
	return append(head.Bytes(), body.Bytes()...)
}

// marked reports whether a line of somebody else's looks like one of ours, and
// has to be told apart.
func marked(line []byte) bool {
	return bytes.HasPrefix(line, []byte(prefix)) || bytes.HasPrefix(line, []byte(beginMark)) ||
		bytes.HasPrefix(line, []byte(endLine))
}

// searchList is what the edited file searches: our domains, then the
// original's, without repetition and within glibc's limits.
func (e edit) searchList(orig []byte) []string {
	theirs := parseSearch(orig)
	if theirs == nil && e.host != "" {
		theirs = []string{e.host}
	}
	var list []string
	length := -1
	for _, d := range slices.Concat(e.search, theirs) {
		same := func(have string) bool { return strings.EqualFold(have, d) }
		if d == "." || slices.ContainsFunc(list, same) {
			continue
		}
		if len(list) == maxSearch || length+1+len(d) > maxSearchText {
			break
		}
		list = append(list, d)
		length += 1 + len(d)
	}
	return list
}

// strip undoes apply: it returns the original of an edited file, or data itself
// and false. What others changed in the edited file stays changed. A block
// whose end is lost goes as far as its lines are of the kinds we write.
func strip(data []byte) (orig []byte, edited bool) {
	var out bytes.Buffer
	inside := false
	for line := range bytes.Lines(data) {
		if !edited && bytes.HasPrefix(line, []byte(beginMark)) {
			edited, inside = true, true
			continue
		}
		if inside {
			keyword, _ := split(line)
			if bytes.HasPrefix(line, []byte(endLine)) {
				inside = false
				continue
			}
			if keyword == "nameserver" || keyword == "search" || keyword == "options" {
				continue
			}
			inside = false
		}
		out.Write(bytes.TrimPrefix(line, []byte(prefix)))
	}
	if !edited {
		return data, false
	}
	return out.Bytes(), true
}

// split takes a line apart as glibc does: the keyword stands at its beginning
// and blanks follow.
func split(line []byte) (keyword, rest string) {
	s := strings.TrimRight(string(line), "\r\n")
	i := strings.IndexAny(s, " \t")
	if i <= 0 || s[0] == '#' || s[0] == ';' {
		return "", ""
	}
	return s[:i], strings.Trim(s[i:], " \t")
}

// parseServer reads the argument of a nameserver line.
func parseServer(rest string) (netip.Addr, bool) {
	if i := strings.IndexAny(rest, " \t;#"); i >= 0 {
		rest = rest[:i]
	}
	addr, err := netip.ParseAddr(rest)
	return addr, err == nil
}

// parseServers returns the servers of a resolv.conf but own, in order.
func parseServers(data []byte, own netip.Addr) []netip.Addr {
	var list []netip.Addr
	for line := range bytes.Lines(data) {
		keyword, rest := split(line)
		if keyword != "nameserver" {
			continue
		}
		if addr, ok := parseServer(rest); ok && addr != own && !slices.Contains(list, addr) && len(list) < maxUpstreams {
			list = append(list, addr)
		}
	}
	return list
}

// parseSearch returns the search list of a resolv.conf: the last line that
// sets it counts. It is nil where none does.
func parseSearch(data []byte) []string {
	var list []string
	for line := range bytes.Lines(data) {
		switch keyword, rest := split(line); keyword {
		case "search":
			list = strings.Fields(rest)
		case "domain":
			list = strings.Fields(rest)
			list = list[:min(len(list), 1)]
		}
	}
	return list
}
