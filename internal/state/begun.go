package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"golang.org/x/sys/unix"
)

const (
	joiningFile = "joining.json" // stands in a draft whose keys a hub may have admitted
	roomFile    = "room"         // keeps space for what a hub's answer brings
	roomSize    = 64 << 10       // bytes
)

// joining says which network was asked.
type joining struct {
	Root string `json:"root"` // the network's fingerprint, in hexadecimal
}

// Begin puts keys for a node of the network with this root into the draft, on
// disk before anybody hears of them, and returns them. They are those of an
// earlier draft for the same path and network whose joining has no known end,
// and then again is true: a hub that admitted them, and whose answer was lost,
// knows them, and they cost no second use of the token. Space for the answer is
// taken, until SaveChain, so that a full disk shows before a hub is asked.
func (d *Draft) Begin(root peer.Fingerprint) (keys cert.Keys, again bool, err error) {
	if err := d.write(roomFile, make([]byte, roomSize), secretMode); err != nil {
		return keys, false, err
	}
	if keys, err := d.begun(root); err == nil {
		return keys, true, nil
	}
	d.clear(roomFile) // another network's, or damaged
	if keys, err = cert.NewKeys(); err != nil {
		return keys, false, err
	}
	if err := d.SaveKeys(keys); err != nil {
		return keys, false, err
	}
	return keys, false, d.SaveJSON(joiningFile, joining{cert.FormatFingerprint(root)}, secretMode)
}

// SaveChain writes the node's certificate, its issuer's and the root's.
func (d *Draft) SaveChain(chain [][]byte) error {
	os.Remove(d.Path(roomFile))
	return d.files.SaveChain(chain)
}

// begun returns the keys that a joining of this network began with.
func (d *Draft) begun(root peer.Fingerprint) (cert.Keys, error) {
	var j joining
	if err := d.LoadJSON(joiningFile, &j, maxFile); err != nil {
		return cert.Keys{}, err
	}
	if j.Root != cert.FormatFingerprint(root) {
		return cert.Keys{}, errors.New("state: another network's")
	}
	return d.parseKeys()
}

// clear removes what is in the draft, with exceptions.
func (d *Draft) clear(except ...string) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !slices.Contains(except, e.Name()) {
			os.RemoveAll(d.Path(e.Name()))
		}
	}
}

// Suspend ends the draft but keeps what Begin has put into it, beside the path,
// for the next Create. It is for a joining whose end is not known; after Commit
// or Abort it does nothing.
func (d *Draft) Suspend() {
	if d.held == nil {
		return
	}
	d.clear(keysFile, joiningFile)
	d.held.Close()
	d.held = nil
}

// adopt takes over a draft of a dead process that Begin has put keys into, and
// removes those that have none. It returns nil where there is none to adopt. One that
// another user may have put there is left alone: he knows its keys.
func adopt(path string) *os.File {
	held, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(int(held.Fd()), &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		held.Close()
		return nil
	}
	if unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !isAt(held, path) {
		held.Close()
		return nil
	}
	if _, err := os.Lstat(filepath.Join(path, joiningFile)); err == nil {
		return held
	}
	os.RemoveAll(path) // failing to is no harm
	held.Close()
	return nil
}

// isAt reports whether path still names the open directory: its process may have
// committed or removed it before we had the lock.
func isAt(dir *os.File, path string) bool {
	a, err := dir.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}
