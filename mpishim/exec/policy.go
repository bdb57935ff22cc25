package exec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Bounds of a policy, so that it fits into one read.
const (
	maxPolicy = 64 << 10 // bytes of policy.json
	maxRules  = 512
)

// minUID is the first user id that may be used without a rule naming it.
const minUID = 1000

// Policy says which local user a vouched user of another node becomes. The zero
// Policy is the default: the same name, user id 1000 and above.
type Policy struct {
	AllowRoot bool   `json:"allow_root,omitempty"` // whether anybody may become root here
	Map       []Rule `json:"map,omitempty"`        // the first rule that matches decides
}

// NoOne is the Policy that refuses everybody.
func NoOne() Policy { return Policy{Map: []Rule{{User: "*", Deny: true}}} }

// Rule maps users of a node or a site, or of all nodes, to a local user.
type Rule struct {
	Node string `json:"node,omitempty"` // the caller's node; empty or "*" is any
	Site string `json:"site,omitempty"` // the caller's site; empty or "*" is any
	User string `json:"user"`           // the vouched user; "*" is any
	To   string `json:"to,omitempty"`   // the local user; empty is the same name
	Deny bool   `json:"deny,omitempty"` // refuse instead
}

// Caller is who a session runs for: a user of a node, vouched for by that node.
type Caller struct{ Node, Site, User string }

func (c Caller) String() string { return c.User + "@" + c.Node }

func (r Rule) matches(c Caller) bool {
	is := func(want, got string) bool { return want == "" || want == "*" || want == got }
	return is(r.Node, c.Node) && is(r.Site, c.Site) && (r.User == "*" || r.User == c.User)
}

// Local returns the local user that c becomes. login is the name that c asked
// for: when it differs from c.User, the first rule that matches c and either
// denies or leads to that very name decides. mapped reports whether a rule named the
// user, in which case system users (id below 1000) are allowed too. Whether the
// user is root must be checked by id, against AllowRoot.
func (p Policy) Local(c Caller, login string) (name string, mapped bool, err error) {
	for _, r := range p.Map {
		if !r.matches(c) {
			continue
		}
		to := r.To
		if to == "" {
			to = c.User
		}
		switch {
		case r.Deny:
			return "", false, fmt.Errorf("exec: policy denies %s; ask this node's administrator (policy.json)", c)
		case login == "" || login == c.User || login == to:
			return to, r.To != "", nil
		}
	}
	if login != "" && login != c.User {
		return "", false, fmt.Errorf("exec: policy does not map %s to user %s; ask this node's administrator (policy.json)", c, login)
	}
	return c.User, false, nil
}

// LoadPolicy reads policy.json in the state directory; a missing file is the
// zero Policy. An error is one line that names the file.
func LoadPolicy(stateDir string) (Policy, error) {
	path := filepath.Join(stateDir, "policy.json")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Policy{}, nil
	}
	if err != nil {
		return Policy{}, fmt.Errorf("exec: policy: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return Policy{}, fmt.Errorf("exec: policy %s: %w", path, err)
	}
	p, err := ParsePolicy(raw)
	if err != nil {
		return Policy{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy reads a policy in JSON, at most 64 KiB with at most 512 rules.
// Unknown fields are errors: a misspelt "deny" must not allow.
func ParsePolicy(raw []byte) (Policy, error) {
	var p Policy
	if len(raw) > maxPolicy {
		return p, fmt.Errorf("exec: policy is longer than %d bytes", maxPolicy)
	}
	if err := unmarshalStrict(raw, &p); err != nil {
		return Policy{}, fmt.Errorf("exec: policy: %w", err)
	}
	return p, p.check()
}

func (p Policy) check() error {
	if len(p.Map) > maxRules {
		return fmt.Errorf("exec: policy has %d rules, at most %d are allowed", len(p.Map), maxRules)
	}
	for i, r := range p.Map {
		var err error
		if r.User != "*" {
			err = checkName("user", r.User)
		}
		if r.To != "" {
			err = oneline.Join(err, checkName("user", r.To))
		}
		if err == nil && r.Deny && r.To != "" {
			err = errors.New("exec: deny and to exclude each other")
		}
		if err != nil {
			return fmt.Errorf("exec: policy rule %d: %w", i+1, err)
		}
	}
	return nil
}
