package exec

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestPolicyLocal(t *testing.T) {
	p := Policy{Map: []Rule{
		{Node: "evil", User: "*", Deny: true},
		{Site: "lyon", User: "marie", To: "mcurie"},
		{User: "root", To: "mpi"},
		{Node: "a", User: "alice", To: "guest"},
		{Node: "a", User: "alice", To: "project"},
	}}
	for _, tt := range []struct {
		name   string
		caller Caller
		login  string
		want   string // empty for an error
		mapped bool
	}{
		{"same name", Caller{"b", "x", "bob"}, "bob", "bob", false},
		{"no login asked", Caller{"b", "x", "bob"}, "", "bob", false},
		{"site", Caller{"b", "lyon", "marie"}, "marie", "mcurie", true},
		{"other site", Caller{"b", "x", "marie"}, "marie", "marie", false},
		{"root", Caller{"b", "x", "root"}, "root", "mpi", true},
		{"denied", Caller{"evil", "lyon", "marie"}, "marie", "", false},
		{"first", Caller{"a", "x", "alice"}, "alice", "guest", true},
		{"second by login", Caller{"a", "x", "alice"}, "project", "project", true},
		{"login not mapped", Caller{"a", "x", "alice"}, "bob", "", false},
		{"root by login", Caller{"a", "x", "alice"}, "root", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, mapped, err := p.Local(tt.caller, tt.login)
			if got != tt.want || mapped != tt.mapped || (err != nil) != (tt.want == "") {
				t.Errorf("got %q, %v, %v, want %q, %v", got, mapped, err, tt.want, tt.mapped)
			}
		})
	}
}

func TestLoadPolicy(t *testing.T) {
	dir := t.TempDir()
	if p, err := LoadPolicy(dir); err != nil || p.AllowRoot || p.Map != nil {
		t.Errorf("missing file: got %+v, %v", p, err)
	}
	for text, want := range map[string]string{
		`{"allow_root": true, "map": [{"user": "*"}]}`: "",
		`{"map": [{"user": "a", "dney": true}]}`:       "dney",
		`{"map": [{"user": ""}]}`:                      "rule 1",
		`{"map": [{"user": "a", "to": "b c"}]}`:        "rule 1",
		`{"map": [{"user":"a","to":"b","deny":true}]}`: "exclude",
		`{} {}`:                          "after",
		`{`:                              "EOF",
		strings.Repeat(" ", maxPolicy+1): "longer",
	} {
		if err := os.WriteFile(dir+"/policy.json", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadPolicy(dir)
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "policy.json")) {
			t.Errorf("%.60q: got %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"allow_root":true,"map":[{"node":"a","site":"s","user":"*","to":"u"}]}`))
	f.Add([]byte(`{"map":[{"user":"x","deny":true}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePolicy(raw)
		if err != nil {
			return
		}
		if name, _, err := p.Local(Caller{"n", "s", "u"}, "u"); err == nil && checkName("user", name) != nil {
			t.Errorf("maps to %q", name)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	seed, _ := json.Marshal(sessionConfig{Seed: make([]byte, 32), SignKey: make([]byte, 32), Caller: Caller{Node: "a"}, Node: "b", StateDir: "/x"})
	f.Add(seed)
	f.Add([]byte(`{"seed":"","policy":{"map":[{}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, err := parseConfig(raw); err == nil && c.check() != nil {
			t.Error("an invalid configuration passes")
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) b (c) S 3 4 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		parseStat(raw)
		parseAccount(string(raw), "a")
		cgroup2Root(string(raw))
	})
}

// oneRead is a connection that has only this to say.
type oneRead struct {
	net.Conn
	r *bytes.Reader
}

func (o oneRead) Read(p []byte) (int, error) { return o.r.Read(p) }

func FuzzOverheard(f *testing.F) {
	f.Add([]byte(refused + "why\r\nSSH-2.0-x\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o := &overheard{Conn: oneRead{r: bytes.NewReader(raw)}}
		for buf := make([]byte, 100); ; {
			if n, err := o.Read(buf); n == 0 || err != nil {
				break
			}
		}
		if why := o.refusal(); strings.ContainsAny(why, "\r\n") || len(why) > 512 {
			t.Errorf("got %q", why)
		}
	})
}

// TestAdmit: names come from peers, and the policy and the account decide.
func TestAdmit(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	open := Policy{AllowRoot: true}
	for _, tc := range []struct {
		what, user string
		policy     Policy
		says       string // "": admitted
	}{
		{"our own user", me.Username, open, ""},
		{"no name", "", open, "not a name"},
		{"an option", "-x", open, "not a name"},
		{"a line", "a\nb", open, "not a name"},
		{"nobody's name", "no-such-user-here", open, "no user"},
		{"denied", me.Username, Policy{AllowRoot: true, Map: []Rule{{User: "*", Deny: true}}}, "policy denies"},
	} {
		uid, err := Admit(t.Context(), tc.policy, Caller{Node: "b1", Site: "beta", User: tc.user})
		switch {
		case tc.says == "" && (err != nil || strconv.Itoa(int(uid)) != me.Uid):
			t.Errorf("%s: %d, %v", tc.what, uid, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: %v, want %q", tc.what, err, tc.says)
		}
	}
}

// TestExpiry reads what chage -E writes; an account that has expired is refused.
func TestExpiry(t *testing.T) {
	for line, want := range map[string]string{
		"bob:!$y$x:20000:0:99999:7::1:": "1970-01-02",
		"bob:*:20000:0:99999:7::0:":     "1970-01-01",
		"bob:*:20000:0:99999:7::20500:": "2026-02-16",
		"bob:*:20000:0:99999:7:::":      "",
		"bob:*:20000:0:99999:7::-1:":    "",
		"bob:*:20000:0:99999:7::x:":     "",
		"eve:*:20000:0:99999:7::1:":     "",
		"bob:x:1000:1000::/h:/bin/sh":   "",
		"":                              "",
	} {
		ends, got := expiry(line, "bob"), ""
		if !ends.IsZero() {
			got = ends.Format(time.DateOnly)
		}
		if got != want {
			t.Errorf("%q: ends %q, want %q", line, got, want)
		}
		if err := (account{name: "bob", uid: uint32(os.Geteuid()), shell: "/bin/sh", ends: ends}).allowed(Policy{AllowRoot: true}, true); (err == nil) != (want == "") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
