package resolver

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Limits of resolv.conf: ours on its size, glibc's on what it reads of it
// (resolv.conf(5): MAXNS, and 256 characters of search list until glibc 2.26).
const (
	maxConf       = 64 << 10
	maxServers    = 3
	maxSearchText = 255
)

// Our edit of a resolv.conf can be undone by looking at it alone. It is a block
// in front
//
//	# meshmpi: begin 127.77.0.53 …
//	nameserver 127.77.0.53
//	search paris.mesh.internal mesh.internal example.org
//	# meshmpi: end 127.77.0.53
//
// and, before each line of the original that the block replaces, the prefix
// "#meshmpi 127.77.0.53: ". All other lines stay as they are.
//
// The server's address tells the edits of several networks' daemons apart: to
// each the others' are part of the original. The one that came last is in front,
// and has the one behind it as an upstream; see outer.
const (
	anyBegin  = "# meshmpi: begin "
	anyEnd    = "# meshmpi: end"
	anyPrefix = "#meshmpi"
	beginText = ` (by meshd while it runs; "meshd restore" takes it away)`
)

// marks are what an edit is known by.
type marks struct{ begin, end, prefix string }

func marksOf(server netip.Addr) marks {
	return marks{anyBegin + server.String() + beginText, anyEnd + " " + server.String(), anyPrefix + " " + server.String() + ": "}
}

// nameless are the marks of versions before that knew of no other daemon.
var nameless = marks{anyBegin + beginText[1:], anyEnd, anyPrefix + ": "}

// is reports whether a line is the mark.
func is(line []byte, mark string) bool { return string(bytes.TrimRight(line, "\r\n")) == mark }

// An edit is what is to be put in front of a resolv.conf.
type edit struct {
	server netip.Addr // asked first
	search []string   // searched first
	host   string     // the host's own domain, searched where the file says nothing; or ""
}

// apply returns the edited form of orig, which holds no edit of ours.
func (e edit) apply(orig []byte) []byte {
	var head, body bytes.Buffer
	own := marksOf(e.server)
	fmt.Fprintf(&head, "%s\n", own.begin)
	fmt.Fprintf(&head, "nameserver %s\n", e.server)
	servers := 1
	if len(parseServers(orig)) == 0 {
		// The resolver's default, which our line would take away.
		fmt.Fprintf(&head, "nameserver %s\n", implied)
		servers++
	}
	fmt.Fprintf(&head, "search %s\n", strings.Join(e.searchList(orig), " "))
	for line := range bytes.Lines(orig) {
		keyword, rest := split(line)
		replaced := marked(line, own) || marked(line, nameless)
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
			body.WriteString(own.prefix)
		}
		body.Write(line)
	}
	fmt.Fprintf(&head, "%s\n", own.end)
	return append(head.Bytes(), body.Bytes()...)
}

// marked reports whether a line of somebody else's looks like one of ours, and
// has to be told apart.
func marked(line []byte, m marks) bool {
	return bytes.HasPrefix(line, []byte(m.prefix)) || is(line, m.begin) || is(line, m.end)
}

// searchList is what the edited file searches: our domains, then the
// original's, without repetition. Where the original keeps to the length that
// old versions of glibc cut at, amid a domain, so does the list, with fewer of
// ours. Those read no more than six domains either, but pass over the rest by
// themselves.
func (e edit) searchList(orig []byte) []string {
	theirs := parseSearch(orig)
	if theirs == nil && e.host != "" {
		theirs = []string{e.host}
	}
	room := maxSearchText - len(strings.Join(theirs, " "))
	limited := room >= 0
	var list []string
	seen := make(map[string]bool)
	for i, d := range slices.Concat(e.search, theirs) {
		key := strings.ToLower(d)
		if d == "." || seen[key] {
			continue
		}
		if i < len(e.search) {
			if limited && len(d)+1 > room {
				continue
			}
			room -= len(d) + 1
		}
		seen[key] = true
		list = append(list, d)
	}
	return list
}

// strip undoes apply with the server: it returns the original of an edited file,
// or data itself and false. What others changed in the edited file stays changed.
// A block whose end is lost goes as far as its lines are of the kinds we write.
func strip(data []byte, server netip.Addr) (orig []byte, edited bool) {
	for _, m := range []marks{nameless, marksOf(server)} {
		var was bool
		data, was = m.strip(data)
		edited = edited || was
	}
	return data, edited
}

func (m marks) strip(data []byte) (orig []byte, edited bool) {
	var out bytes.Buffer
	inside := false
	for line := range bytes.Lines(data) {
		if !edited && is(line, m.begin) {
			edited, inside = true, true
			continue
		}
		if inside {
			if is(line, m.end) {
				inside = false
				continue
			}
			if isBlockLine(line) && !bytes.HasPrefix(line, []byte(m.prefix)) {
				continue
			}
			inside = false
		}
		out.Write(bytes.TrimPrefix(line, []byte(m.prefix)))
	}
	if !edited {
		return data, false
	}
	return out.Bytes(), true
}

// isBlockLine reports whether a line is of those that stand in a block, which
// another daemon's edit may have replaced.
func isBlockLine(line []byte) bool {
	keyword, _ := split(bare(line))
	return keyword == "nameserver" || keyword == "search" || keyword == "options"
}

// bare returns a line as it was before other daemons replaced it.
func bare(line []byte) []byte {
	for {
		rest, ok := bytes.CutPrefix(line, []byte(anyPrefix))
		if !ok {
			return line
		}
		if _, line, ok = bytes.Cut(rest, []byte(": ")); !ok {
			return nil
		}
	}
}

// hostsOwn returns the servers of a resolv.conf but some, with those that other
// daemons replaced.
func hostsOwn(data []byte, but ...netip.Addr) []netip.Addr {
	var all []byte
	for line := range bytes.Lines(data) {
		all = append(all, bare(line)...)
	}
	return parseServers(all, but...)
}

// outer returns the servers of other daemons' blocks in front of ours. There are
// none unless ours is behind nothing but such blocks: then the file is as those
// daemons want it and serves us, since they have our server for an upstream. We
// must not have theirs.
func outer(data []byte, server netip.Addr) (servers []netip.Addr) {
	own, inside := marksOf(server), false
	for line := range bytes.Lines(data) {
		switch {
		case is(line, own.begin):
			return servers
		case bytes.HasPrefix(line, []byte(anyBegin)):
			inside = true
		case bytes.HasPrefix(line, []byte(anyEnd)):
			inside = false
		case !inside || !isBlockLine(line):
			return nil
		}
		if keyword, rest := split(line); keyword == "nameserver" {
			if a, ok := parseServer(rest); ok && a != implied {
				servers = append(servers, a)
			}
		}
	}
	return nil
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

// parseServers returns the servers of a resolv.conf but some, in order.
func parseServers(data []byte, but ...netip.Addr) []netip.Addr {
	var list []netip.Addr
	for line := range bytes.Lines(data) {
		keyword, rest := split(line)
		if keyword != "nameserver" {
			continue
		}
		if addr, ok := parseServer(rest); ok && !slices.Contains(but, addr) && !slices.Contains(list, addr) && len(list) < maxUpstreams {
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
