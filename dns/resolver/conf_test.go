package resolver

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func testEdit() edit {
	return edit{
		server: netip.MustParseAddr("127.77.0.53"),
		search: []string{"paris.mesh.internal", "mesh.internal"},
		host:   "cluster.org",
	}
}

var own = marksOf(netip.MustParseAddr("127.77.0.53"))

func TestApply(t *testing.T) {
	begin, end := own.begin+"\nnameserver 127.77.0.53\n", own.end+"\n"
	const ours = "search paris.mesh.internal mesh.internal"
	for _, tt := range []struct{ what, orig, want string }{
		{"empty", "", begin + "nameserver 127.0.0.1\n" + ours + " cluster.org\n" + end},
		{"one server", "nameserver 10.0.0.1\n",
			begin + ours + " cluster.org\n" + end + "nameserver 10.0.0.1\n"},
		{"no newline", "nameserver 10.0.0.1",
			begin + ours + " cluster.org\n" + end + "nameserver 10.0.0.1"},
		{"three servers", "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n",
			begin + ours + " cluster.org\n" + end + "nameserver 10.0.0.1\nnameserver 10.0.0.2\n" + own.prefix + "nameserver 10.0.0.3\n"},
		{"our server", "nameserver 127.77.0.53\nnameserver fe80::1%eth0\n",
			begin + ours + " cluster.org\n" + end + own.prefix + "nameserver 127.77.0.53\nnameserver fe80::1%eth0\n"},
		{"search", "search a.org B.org\nnameserver 10.0.0.1\n",
			begin + ours + " a.org B.org\n" + end + own.prefix + "search a.org B.org\nnameserver 10.0.0.1\n"},
		{"the last search counts", "search a.org\ndomain b.org\nnameserver 10.0.0.1\n",
			begin + ours + " b.org\n" + end + own.prefix + "search a.org\n" + own.prefix + "domain b.org\nnameserver 10.0.0.1\n"},
		{"search nothing", "search .\nnameserver 10.0.0.1\n",
			begin + ours + "\n" + end + own.prefix + "search .\nnameserver 10.0.0.1\n"},
		{"seven domains", "nameserver 10.0.0.1\nsearch a b MESH.internal c d e f\n",
			begin + ours + " a b c d e f\n" + end + "nameserver 10.0.0.1\n" + own.prefix + "search a b MESH.internal c d e f\n"},
		{"256 characters with ours", "nameserver 10.0.0.1\nsearch " + strings.Repeat("x", 222) + " y\n",
			begin + strings.Replace(ours, " mesh.internal", "", 1) + " " + strings.Repeat("x", 222) + " y\n" + end + "nameserver 10.0.0.1\n" + own.prefix + "search " + strings.Repeat("x", 222) + " y\n"},
		{"more than 256 characters", "nameserver 10.0.0.1\nsearch " + strings.Repeat("x", 63) + strings.Repeat(" y.org z.org", 40) + " w\n",
			begin + ours + " " + strings.Repeat("x", 63) + " y.org z.org w\n" + end + "nameserver 10.0.0.1\n" +
				own.prefix + "search " + strings.Repeat("x", 63) + strings.Repeat(" y.org z.org", 40) + " w\n"},
		{"options", "nameserver 10.0.0.1\noptions edns0 trust-ad\n# a comment\nsortlist 10.0.0.0\n",
			begin + ours + " cluster.org\n" + end + "nameserver 10.0.0.1\noptions edns0 trust-ad\n# a comment\nsortlist 10.0.0.0\n"},
		{"rotate", "nameserver 10.0.0.1\noptions rotate timeout:1\n",
			begin + ours + " cluster.org\noptions timeout:1\n" + end + "nameserver 10.0.0.1\n" + own.prefix + "options rotate timeout:1\n"},
		{"no keyword", " nameserver 10.0.0.1\n;nameserver 10.0.0.2\nnameserver nobody\n",
			begin + "nameserver 127.0.0.1\n" + ours + " cluster.org\n" + end + " nameserver 10.0.0.1\n;nameserver 10.0.0.2\nnameserver nobody\n"},
	} {
		got := string(testEdit().apply([]byte(tt.orig)))
		if got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.what, got, tt.want)
		}
		if back, edited := strip([]byte(got), testEdit().server); !edited || string(back) != tt.orig {
			t.Errorf("%s: strip gives %q, %v, want %q", tt.what, back, edited, tt.orig)
		}
	}
}

// TestStripChanged undoes edits in which somebody else wrote since.
func TestStripChanged(t *testing.T) {
	edited := string(testEdit().apply([]byte("search a.org\nnameserver 10.0.0.1\n")))
	for _, tt := range []struct{ what, data, want string }{
		{"appended", edited + "options edns0\n", "search a.org\nnameserver 10.0.0.1\noptions edns0\n"},
		{"put before", "# hello\n" + edited, "# hello\nsearch a.org\nnameserver 10.0.0.1\n"},
		{"server changed", strings.Replace(edited, "10.0.0.1", "10.0.0.9", 1), "search a.org\nnameserver 10.0.0.9\n"},
		{"end lost", strings.Replace(edited, own.end+"\n", "", 1), "search a.org\nnameserver 10.0.0.1\n"},
		{"twice", string(testEdit().apply([]byte(edited))), edited},
	} {
		if got, ok := strip([]byte(tt.data), testEdit().server); !ok || string(got) != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.what, got, ok, tt.want)
		}
	}
}

// FuzzConf: whatever a resolv.conf holds, our edit of it can be undone, leaves
// our server first, and stays within what the C library reads.
func FuzzConf(f *testing.F) {
	for _, seed := range []string{
		"", "nameserver 10.0.0.1\n", "search a b c d e f g\r\nnameserver ::1", "options rotate\n" + own.prefix + "x\n",
		own.end + "\n", "domain\nnameserver 1.1.1.1#53\n", string(testEdit().apply(nil)),
	} {
		f.Add([]byte(seed))
	}
	other := testEdit()
	other.server = netip.MustParseAddr("127.77.0.54")
	f.Fuzz(func(t *testing.T, data []byte) {
		orig, _ := strip(data, testEdit().server)
		if _, again := strip(orig, testEdit().server); again {
			return // an edit within an edit, which we never make
		}
		out := testEdit().apply(orig)
		if back, ok := strip(out, testEdit().server); !ok || !bytes.Equal(back, orig) {
			t.Fatalf("%q became %q and then %q", orig, out, back)
		}
		if _, theirs := strip(orig, other.server); !theirs { // another network's edit over ours, and ours gone
			both := other.apply(out)
			if got := outer(both, testEdit().server); !slices.Equal(got, []netip.Addr{other.server}) {
				t.Fatalf("%q: in front of us are %v", both, got)
			}
			left, ok := strip(both, testEdit().server)
			if _, still := strip(left, other.server); !ok || !still {
				t.Fatalf("%q: undoing ours, %v, takes theirs along, %v: %q", both, ok, still, left)
			}
		}
		servers := parseServers(out)
		if len(servers) == 0 || servers[0] != testEdit().server || len(servers) > maxServers {
			t.Fatalf("%q: servers %v", out, servers)
		}
		text := func(list []string) int { return len(strings.Join(list, " ")) }
		list, theirs := parseSearch(out), parseSearch(orig)
		full := text(theirs) <= maxSearchText && text(theirs)+len("paris.mesh.internal ") > maxSearchText
		if long := text(list) > maxSearchText && text(theirs) <= maxSearchText; long || !full && list[0] != "paris.mesh.internal" {
			t.Fatalf("%q: search %v", out, list)
		}
		for _, d := range theirs {
			if d != "." && !slices.ContainsFunc(list, func(x string) bool { return strings.EqualFold(x, d) }) {
				t.Fatalf("%q: search %v, without their %s", out, list, d)
			}
		}
	})
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"version":1,"link":"mesh0","file":{"root":"/","path":"/etc/resolv.conf","target":"/run/x","existed":true,"original":"eA==","written":"eQ=="}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"file":{"path":"../x"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		j, err := decodeJournal(raw)
		if err != nil || j.File == nil {
			return
		}
		if j.File.Target == "" || j.File.Target[0] != '/' || strings.Contains(j.Link, "/") {
			t.Fatalf("accepted %+v", j)
		}
	})
}
