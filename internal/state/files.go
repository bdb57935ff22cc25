package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/meshmpi/meshmpi/mesh/cert"
)

// maxFile bounds the files that this package itself reads, in bytes.
const maxFile = 128 << 10

// files is a directory of state files: a node's, or a draft of one.
type files struct{ path string }

// Path returns the path of name inside the directory.
func (f files) Path(name string) string { return filepath.Join(f.path, name) }

// corrupt is a file that says something impossible.
type corrupt struct {
	path, what, remedy string
}

func (c *corrupt) Error() string {
	return fmt.Sprintf("state: %s is damaged (%s); %s", c.path, c.what, c.remedy)
}

// Corrupt reports whether err is about a file that can be read but says
// something impossible.
func Corrupt(err error) bool {
	var c *corrupt
	return errors.As(err, &c)
}

// damaged is a corrupt file that only a backup or a new admission can replace; a hub's
// only a backup, since the others beside it may be all there is of the network.
func (f files) damaged(name string, err error) error {
	remedy := "restore it from a backup, or remove " + f.path + " and join again with a new token"
	if filepath.Dir(name) == hubDir {
		remedy = "restore it from a backup of this hub, and remove nothing: the network's keys lie beside it"
	}
	return &corrupt{f.Path(name), oneLine(err), remedy}
}

// blamed is the file that an error is about of the two that hold a certificate and
// its key.
func blamed(err error, crt, key string) string {
	if errors.Is(err, cert.ErrKey) {
		return key
	}
	return crt
}

// oneLine keeps an error fit for a line.
func oneLine(err error) string {
	return string(bytes.Join(bytes.Fields([]byte(err.Error())), []byte(" ")))
}

// LoadJSON reads name, of at most max bytes, into v. The error is fs.ErrNotExist
// where there is no such file, and Corrupt where it is not v's JSON or too long.
func (f files) LoadJSON(name string, v any, max int64) error {
	b, err := f.read(name, max)
	if errors.Is(err, errTooLong) {
		return &corrupt{f.Path(name), err.Error(), "restore it from a backup or remove it"}
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &corrupt{f.Path(name), oneLine(err), "restore it from a backup or remove it"}
	}
	return nil
}

// SaveJSON replaces name by v in JSON: readers and crashes find the old file or
// the new one.
func (f files) SaveJSON(name string, v any, mode fs.FileMode) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("state: write %s: %w", f.Path(name), err)
	}
	return f.write(name, append(b, '\n'), mode)
}

// LoadRoot returns the network's root, without its key where that is offline.
// The error is fs.ErrNotExist on nodes that are no hubs.
func (f files) LoadRoot() (*cert.Root, error) {
	crt, err := f.read(rootCert, maxFile)
	if err != nil {
		return nil, f.judge(rootCert, err)
	}
	key, err := f.read(rootKey, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, f.judge(rootKey, err)
	}
	r, err := cert.ParseRoot(crt, key)
	if err != nil {
		return nil, f.damaged(blamed(err, rootCert, rootKey), err)
	}
	return r, nil
}

// SaveRoot writes the network's root. One without a key leaves a key that is
// already there alone.
func (f files) SaveRoot(r *cert.Root) error {
	crt, key, err := r.MarshalPEM()
	if err != nil {
		return fmt.Errorf("state: write root: %w", err)
	}
	if key != nil {
		if err := f.write(rootKey, key, secretMode); err != nil {
			return err
		}
	}
	return f.write(rootCert, crt, secretMode)
}

// LoadIssuer returns what lets a hub admit nodes, fs.ErrNotExist where the node
// is no hub.
func (f files) LoadIssuer() (*cert.Issuer, error) {
	crt, err := f.read(issuerCert, maxFile)
	if err != nil {
		return nil, f.judge(issuerCert, err)
	}
	file, wrong := issuerKey, errors.New("it is missing")
	for _, name := range []string{issuerKey, issuerNewKey} {
		key, err := f.read(name, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, f.judge(name, err)
		}
		i, err := cert.ParseIssuer(crt, key)
		if err == nil {
			return i, nil
		}
		file, wrong = blamed(err, issuerCert, name), err
	}
	return nil, f.damaged(file, wrong)
}

// SaveIssuer writes what lets a hub admit nodes. The new key lies beside the old
// one until the certificate is replaced, so that at any instant there is a key
// for the certificate.
func (f files) SaveIssuer(i *cert.Issuer) error {
	crt, key, err := i.MarshalPEM()
	if err != nil {
		return fmt.Errorf("state: write issuer: %w", err)
	}
	if err := f.write(issuerNewKey, key, secretMode); err != nil {
		return err
	}
	if err := f.write(issuerCert, crt, secretMode); err != nil {
		return err
	}
	if err := os.Rename(f.Path(issuerNewKey), f.Path(issuerKey)); err != nil {
		return fmt.Errorf("state: write issuer: %w", err)
	}
	return syncDir(f.Path(hubDir))
}

var errTooLong = errors.New("it is longer than it can be")

// judge turns a file that is too long into a damaged one.
func (f files) judge(name string, err error) error {
	if errors.Is(err, errTooLong) {
		return f.damaged(name, err)
	}
	return err
}

// read returns the contents of name, of at most max bytes.
func (f files) read(name string, max int64) ([]byte, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("state: %q leaves the directory", name)
	}
	file, err := os.Open(f.Path(name))
	if err != nil {
		return nil, fmt.Errorf("state: %w", hint(err))
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, max+1))
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if int64(len(b)) > max {
		return nil, errTooLong
	}
	return b, nil
}

// write replaces name atomically and durably.
func (f files) write(name string, b []byte, mode fs.FileMode) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("state: %q leaves the directory", name)
	}
	path := f.Path(name)
	dir := filepath.Dir(path)
	if dir != f.path {
		if err := os.Mkdir(dir, 0o700); err == nil {
			err = syncDir(f.path)
			if err != nil {
				return fmt.Errorf("state: write %s: %w", path, hint(err))
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("state: write %s: %w", path, hint(err))
		}
	}
	if err := replace(path, dir, b, mode); err != nil {
		return fmt.Errorf("state: write %s: %w", path, hint(err))
	}
	return nil
}

func replace(path, dir string, b []byte, mode fs.FileMode) error {
	t, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer t.Cleanup()
	if _, err := t.Write(b); err != nil {
		return err
	}
	if err := t.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
