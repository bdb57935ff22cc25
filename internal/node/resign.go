package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/meshmpi/meshmpi/internal/state"
	"github.com/meshmpi/meshmpi/mesh/cert"
)

// issuerLate is the rest of an issuer's life at which its hub asks for another: three
// times as long as nodes' certificates last, which it has to outlive.
const issuerLate = 3 * cert.Lifetime

// Resign has the network's root sign a new issuer for a hub that does not run, with a new
// key, and returns until when that holds. rootKey is where the root's key is, "" for where
// Init has put it. What the issuer of before has signed holds as long as it would have;
// nodes get certificates of the new one as they renew theirs.
func Resign(stateDir, rootKey string, now time.Time) (until time.Time, err error) {
	dir, err := state.Open(stateDir)
	if err != nil {
		return until, err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return until, err
	}
	defer unlock()
	config, err := dir.LoadNode()
	if err != nil {
		return until, err
	}
	if !config.Hub {
		return until, fmt.Errorf("node: %s is no hub and signs nothing; run this on a hub", config.Name)
	}
	root, err := dir.LoadRoot()
	if err != nil {
		return until, err
	}
	if rootKey != "" {
		if root, err = withKey(root, rootKey); err != nil {
			return until, err
		}
	}
	if root.Key == nil {
		return until, fmt.Errorf("node: the key of the network's root is not in %s; say where it is with --root-key FILE", filepath.Dir(dir.Path(storeFile)))
	}
	issuer, err := root.NewIssuer(config.Name, now)
	if err != nil {
		return until, err
	}
	return issuer.Cert.NotAfter, dir.SaveIssuer(issuer)
}

// withKey returns a root with its key from a file.
func withKey(root *cert.Root, path string) (*cert.Root, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("node: there is no %s; --root-key names the file that meshd init made as hub/root.key", path)
	}
	if err != nil {
		return nil, fmt.Errorf("node: read the root's key: %w", err)
	}
	crt, _, err := root.MarshalPEM()
	if err != nil {
		return nil, err
	}
	with, err := cert.ParseRoot(crt, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("node: %s is not the key of this network's root: %w", path, err)
	case with.Key == nil:
		return nil, fmt.Errorf("node: %s is empty", path)
	}
	return with, nil
}

// issuerWarning says that a hub's issuer ends soon, or "".
func issuerWarning(left time.Duration) string {
	switch {
	case left > issuerLate:
		return ""
	case left <= 0:
		return "this hub's issuer has expired and it can neither admit nodes nor renew their certificates; stop meshd and run meshd resign with the root's key"
	}
	return fmt.Sprintf("this hub's issuer, without which all certificates end, expires in %s; stop meshd and run meshd resign with the root's key", roughly(left))
}
