package exec

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is a local user as the passwd database has it.
type account struct {
	name, home, shell string
	uid, gid          uint32
	groups            []uint32
	ends              time.Time // from when on it has expired; zero: never
}

// lookupAccount asks the host's name service (files, LDAP, SSSD …) through
// getent, and /etc/passwd where that tool is missing.
func lookupAccount(ctx context.Context, name string) (account, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	line, err := getent(ctx, name)
	if err != nil {
		line = passwdLine("/etc/passwd", name)
	}
	acc, err := parseAccount(line, name)
	if err != nil {
		return account{}, err
	}
	if os.Geteuid() == 0 { // nobody else may know
		shadow, _ := osexec.CommandContext(ctx, "getent", "shadow", "--", name).Output() // where there is none nothing expires
		acc.ends = expiry(strings.TrimSpace(string(shadow)), name)
	}
	acc.groups = []uint32{acc.gid}
	out, err := osexec.CommandContext(ctx, "id", "-G", "--", name).Output()
	if err != nil {
		return acc, nil // the primary group alone gives less, never more
	}
	acc.groups = acc.groups[:0]
	for _, f := range strings.Fields(string(out)) {
		if gid, err := strconv.ParseUint(f, 10, 32); err == nil {
			acc.groups = append(acc.groups, uint32(gid))
		}
	}
	return acc, nil
}

// UserName returns the name that the host's name service has for a user's number, "" if
// it has none. Package os/user knows no more than /etc/passwd where this was built without
// cgo.
func UserName(ctx context.Context, uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	line, _ := getent(ctx, id)                                    // what fails tells of nobody
	if f := strings.Split(line, ":"); len(f) == 7 && f[2] == id { // a name may be a number
		return f[0]
	}
	return ""
}

// getent returns the line of passwd(5) of a user by name or number.
func getent(ctx context.Context, user string) (string, error) {
	out, err := osexec.CommandContext(ctx, "getent", "passwd", "--", user).Output()
	return strings.TrimSpace(string(out)), err
}

func passwdLine(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), name+":") {
			return s.Text()
		}
	}
	return ""
}

// parseAccount reads one line of passwd(5): name:password:uid:gid:gecos:home:shell.
func parseAccount(line, name string) (account, error) {
	f := strings.Split(line, ":")
	if len(f) != 7 || f[0] != name {
		return account{}, fmt.Errorf("exec: no user %s here; create the account or map the user in policy.json", name)
	}
	uid, err1 := strconv.ParseUint(f[2], 10, 32)
	gid, err2 := strconv.ParseUint(f[3], 10, 32)
	if err1 != nil || err2 != nil {
		return account{}, fmt.Errorf("exec: user %s has no numeric ids", name)
	}
	acc := account{name: name, home: f[5], shell: f[6], uid: uint32(uid), gid: uint32(gid)}
	if acc.shell == "" {
		acc.shell = "/bin/sh"
	}
	return acc, nil
}

// expiry reads when an account ends from a line of shadow(5), whose eighth field is the
// first day on which it may not be used, counted from 1970; zero: it does not end.
func expiry(line, name string) time.Time {
	f := strings.Split(line, ":")
	if len(f) != 9 || f[0] != name {
		return time.Time{}
	}
	day, err := strconv.ParseInt(f[7], 10, 32)
	if err != nil || day < 0 {
		return time.Time{}
	}
	return time.Unix(day*24*60*60, 0).UTC()
}

// allowed reports why the account may not be used, nil when it may.
func (a account) allowed(p Policy, mapped bool) error {
	euid := uint32(os.Geteuid())
	confined := euid == 0 && setgroupsDenied()
	switch {
	case confined && a.uid != 0:
		return fmt.Errorf("exec: meshd here is root of a user namespace of its own and can run commands only as that user, not as %s", a.name)
	case a.uid == 0 && !p.AllowRoot && !confined:
		return fmt.Errorf("exec: root is not allowed to run commands here; use another user, map root in policy.json, or create the network with --allow-root-exec")
	case a.uid != 0 && a.uid < minUID && !mapped && a.uid != euid:
		return fmt.Errorf("exec: user %s is a system user (id %d below %d); map it in policy.json", a.name, a.uid, minUID)
	case euid != 0 && a.uid != euid:
		return fmt.Errorf("exec: meshd here is not root and can run commands only as its own user, not as %s", a.name)
	}
	switch filepath.Base(a.shell) {
	case "nologin", "false":
		return fmt.Errorf("exec: user %s has no login shell here (%s)", a.name, a.shell)
	}
	if !a.ends.IsZero() && time.Now().After(a.ends) {
		return fmt.Errorf("exec: the account of user %s has expired here, on %s; see chage -l %s", a.name, a.ends.Format(time.DateOnly), a.name)
	}
	return nil
}

// credential returns what the kernel must switch to, nil when already there.
func (a account) credential() *syscall.Credential {
	if os.Geteuid() != 0 || a.uid == 0 && setgroupsDenied() {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

// setgroupsDenied reports whether this is a user namespace made without
// privilege (user_namespaces(7)): its root is one ordinary user outside and can
// become nobody else.
func setgroupsDenied() bool {
	b, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(b)) == "deny"
}
