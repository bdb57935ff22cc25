package tun

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/boot"
)

const (
	journalName    = "host.journal"
	lockName       = "host.lock"
	journalVersion = 1
	maxJournal     = 64 << 10 // bytes; a journal has a few hundred
	ownerLen       = 16       // hexadecimal digits
)

// journal says what may be on the host because of us. It is written whole
// before the first change and removed after the last one is undone; what it
// names need not exist, so undoing looks before it removes. Everything that
// hangs on the link (addresses, routes through it) goes with the link and needs
// no line of its own.
type journal struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"` // another boot: the kernel has forgotten it all
	Owner   string `json:"owner"`   // random; marks the link and the table as ours
	plan
	RPFilter map[string]string `json:"rp_filter,omitempty"` // what interfaces had before loosen, by name
}

// plan is what the host is to look like.
type plan struct {
	Tun   string       `json:"tun"`
	Addr4 netip.Addr   `json:"addr4"`
	Addr6 netip.Addr   `json:"addr6"`
	CIDR4 netip.Prefix `json:"cidr4"`
	CIDR6 netip.Prefix `json:"cidr6"`
}

// alias marks the link.
func (j *journal) alias() string { return "meshmpi:" + j.Owner }

// table is the name of our firewall table.
func (p *plan) table() string { return "meshmpi_" + p.Tun }

// nets lists the addresses that are configured, each with its network.
func (p *plan) nets() []network {
	var nets []network
	if p.CIDR4.IsValid() {
		nets = append(nets, network{p.Addr4, p.CIDR4})
	}
	if p.CIDR6.IsValid() {
		nets = append(nets, network{p.Addr6, p.CIDR6})
	}
	return nets
}

// network is one family's address and CIDR.
type network struct {
	addr netip.Addr
	cidr netip.Prefix
}

// check reports what makes a plan unusable.
func (p *plan) check() error {
	if !validName(p.Tun) {
		return fmt.Errorf("%q is no name for a network interface: 1 to %d letters, digits, '_', '.' or '-'", p.Tun, unix.IFNAMSIZ-1)
	}
	if !p.CIDR4.IsValid() && !p.CIDR6.IsValid() {
		return errors.New("neither an IPv4 nor an IPv6 network is given")
	}
	for _, n := range []struct {
		network
		is4 bool
	}{{network{p.Addr4, p.CIDR4}, true}, {network{p.Addr6, p.CIDR6}, false}} {
		switch {
		case !n.addr.IsValid() && !n.cidr.IsValid():
		case !n.cidr.IsValid() || n.cidr != n.cidr.Masked() || n.cidr.Addr().Is4() != n.is4 || n.cidr.Addr().Is4In6():
			return fmt.Errorf("%v is not the prefix of a network", n.cidr)
		case n.cidr.Bits() < 8:
			return fmt.Errorf("%v is too large for an overlay", n.cidr)
		case !n.cidr.Contains(n.addr):
			return fmt.Errorf("the address %v is not in the network %v", n.addr, n.cidr)
		}
	}
	return nil
}

// validName accepts what both the kernel and nft take unquoted.
func validName(s string) bool {
	if s == "" || len(s) >= unix.IFNAMSIZ || s[0] == '.' || s[0] == '-' || s == "all" || s == "default" || s == "lo" {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	}) < 0
}

// newJournal starts a journal with a fresh mark.
func newJournal(p plan) (*journal, error) {
	id, err := boot.ID()
	if err != nil {
		return nil, fmt.Errorf("tun: %w", err)
	}
	var mark [ownerLen / 2]byte
	_, _ = rand.Read(mark[:]) // never fails (crypto/rand)
	return &journal{Version: journalVersion, BootID: id, Owner: hex.EncodeToString(mark[:]), plan: p}, nil
}

// decodeJournal is strict: what it accepts may be acted upon.
func decodeJournal(b []byte) (*journal, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, err
	}
	if head.Version != journalVersion {
		return nil, fmt.Errorf("version %d is not %d, which this meshd knows", head.Version, journalVersion)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	j := new(journal)
	if err := d.Decode(j); err != nil {
		return nil, err
	}
	if raw, err := hex.DecodeString(j.Owner); err != nil || len(raw) != ownerLen/2 || j.Owner != hex.EncodeToString(raw) {
		return nil, errors.New("the mark is malformed")
	}
	if err := j.check(); err != nil {
		return nil, err
	}
	for name, was := range j.RPFilter {
		if !validName(name) || was != "0" && was != strict {
			return nil, fmt.Errorf("rp_filter of %.20q cannot have been %.20q", name, was)
		}
	}
	return j, nil
}

// readJournal returns nil when there is none.
func readJournal(dir string) (*journal, error) {
	path := filepath.Join(dir, journalName)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tun: reading the journal: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxJournal+1))
	if err != nil {
		return nil, fmt.Errorf("tun: reading the journal: %w", err)
	}
	if len(b) > maxJournal {
		err = fmt.Errorf("larger than %d bytes", maxJournal)
	}
	var j *journal
	if err == nil {
		j, err = decodeJournal(b)
	}
	if err != nil {
		return nil, fmt.Errorf("tun: %s is damaged (%w); nothing was touched: look for a link with alias meshmpi:… (ip -d link), a table meshmpi_… (nft list tables), a rule of priority %d (ip rule) and routes of proto %d (ip route show table all), remove them by hand, then delete the file", path, err, probePriority, routeProtocol)
	}
	return j, nil
}

// write puts the journal on disk, durably, in place of the one before.
func (j *journal) write(dir string) error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("tun: writing the journal: %w", err)
	}
	// Temporary files stand beside it; those of writers that were killed go here.
	stale, _ := filepath.Glob(filepath.Join(dir, "."+journalName+"*"))
	for _, f := range stale {
		_ = os.Remove(f) // in nobody's way
	}
	err = renameio.WriteFile(filepath.Join(dir, journalName), append(b, '\n'), 0o600, renameio.WithTempDir(dir))
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("tun: writing the journal in %s, without which nothing is changed: %w", dir, err)
	}
	return nil
}

func removeJournal(dir string) error {
	err := os.Remove(filepath.Join(dir, journalName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("tun: removing the journal: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lockState makes the caller the only one who changes the host for this state
// directory, until the file is closed or the process dies.
func lockState(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tun: locking the state directory: %w", err)
	}
	c, err := f.SyscallConn()
	if err == nil {
		var locked error
		err = c.Control(func(fd uintptr) { locked = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) })
		err = errors.Join(err, locked)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("tun: another meshd is running with the state directory %s; stop it first", dir)
		}
		return nil, fmt.Errorf("tun: locking the state directory %s: %w", dir, err)
	}
	return f, nil
}
