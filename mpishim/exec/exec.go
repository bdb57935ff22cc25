// Package exec starts commands on other nodes of a network: an SSH server on
// each node's virtual address, and the client that MPI launchers reach through
// meshrsh.
//
// It exists because MPI launchers need a remote shell, while accounts and SSH
// keys differ between institutes and a running job must outlive a restart of
// the daemon that started it. So the accepting daemon hands each connection, at
// once, to a process of its own (Session); that process knows its caller by the
// node that owns the source address, admits it by a five-minute SSH user
// certificate signed with that node's key (Vouch), maps the vouched user to a
// local one (Policy), runs one command and, when the connection dies, ends
// everything that the command started.
//
// It offers no terminals, forwarding, file transfer or interactive shells, and
// it decides nothing about who is a node: the caller injects that.
//
// Root on a node can vouch for any user of that node, so it can be any user
// that another node's policy maps them to.
package exec

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/meshmpi/meshmpi/internal/oneline"
)

// Port is the TCP port of the exec service on a node's virtual address. IANA
// assigns it to nobody and no usual daemon binds it, unlike 22, which a host's
// own sshd holds on its wildcard address.
const Port = 7722

// Lifetime is how long a certificate made by Vouch admits. It starts one
// lifetime in the past, to bear with clocks that differ.
const Lifetime = 5 * time.Minute

// Exit codes of a run whose program did not decide itself.
const (
	CodeFailed    = 125 // the launcher or the connection failed
	CodeCannotRun = 126 // the program cannot be executed
	CodeNotFound  = 127 // the program does not exist
	CodeSignal    = 128 // plus the signal's number
)

// Ticket is all that a client needs to run one command on a node.
type Ticket struct {
	Node, Site string           // the target's
	Addrs      []netip.AddrPort // where it serves, best first
	HostKey    string           // its Ed25519 key, authorized_keys form
	User       string           // the login asked for; the vouched user where none was
	Cert       string           // SSH user certificate, authorized_keys form
}

// ErrName says that a user or node name holds characters that names do not.
var ErrName = errors.New("is not a name")

// maxName bounds user and node names, in bytes.
const maxName = 64

func checkName(what, name string) error {
	ok := len(name) > 0 && len(name) <= maxName && name[0] != '-'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c > ' ' && c < 0x7f && c != '/' && c != ':' && c != '@' && c != ','
	}
	if !ok {
		return fmt.Errorf("exec: %s %.70q %w", what, name, ErrName)
	}
	return nil
}

// Vouch signs, with the key of the node, that the holder of pub is the user of
// that name on that node: an SSH user certificate (OpenSSH PROTOCOL.certkeys)
// whose key identity is user@node and whose only principal is user.
func Vouch(key ed25519.PrivateKey, node, user string, pub ssh.PublicKey, now time.Time) (*ssh.Certificate, error) {
	if err := oneline.Join(checkName("user", user), checkName("node", node)); err != nil {
		return nil, err
	}
	if _, nested := pub.(*ssh.Certificate); nested || pub == nil {
		return nil, errors.New("exec: vouch: a bare public key is needed")
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, fmt.Errorf("exec: vouch: node key: %w", err)
	}
	cert := &ssh.Certificate{
		Key:             pub,
		CertType:        ssh.UserCert,
		KeyId:           user + "@" + node,
		ValidPrincipals: []string{user},
		ValidAfter:      uint64(now.Add(-Lifetime).Unix()),
		ValidBefore:     uint64(now.Add(Lifetime).Unix()),
	}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		return nil, fmt.Errorf("exec: vouch: sign: %w", err)
	}
	return cert, nil
}

// HostKey returns a node's Ed25519 key in the form that Ticket.HostKey takes.
func HostKey(key ed25519.PublicKey) (string, error) {
	pub, err := ssh.NewPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("exec: host key: %w", err)
	}
	return string(ssh.MarshalAuthorizedKey(pub)), nil
}

// vouched checks the certificate that a connection from a node presents and
// returns the user it names.
func vouched(cert *ssh.Certificate, node string, signKey ed25519.PublicKey, now time.Time) (string, error) {
	authority, err := ssh.NewPublicKey(signKey)
	if err != nil {
		return "", fmt.Errorf("exec: node %s: signing key: %w", node, err)
	}
	switch {
	case cert.CertType != ssh.UserCert:
		return "", errors.New("not a user certificate")
	case string(cert.SignatureKey.Marshal()) != string(authority.Marshal()):
		return "", fmt.Errorf("certificate is not signed by node %s, which owns the source address", node)
	case len(cert.ValidPrincipals) != 1:
		return "", errors.New("certificate names no user, or several")
	case checkName("user", cert.ValidPrincipals[0]) != nil:
		return "", errors.New("certificate names no valid user")
	case cert.ValidBefore < cert.ValidAfter || cert.ValidBefore-cert.ValidAfter > uint64(4*Lifetime/time.Second):
		return "", errors.New("certificate lives too long")
	}
	user := cert.ValidPrincipals[0]
	if cert.KeyId != user+"@"+node {
		return "", fmt.Errorf("certificate is for %.70q, not for a user of node %s", cert.KeyId, node)
	}
	check := ssh.CertChecker{Clock: func() time.Time { return now }}
	if err := check.CheckCert(user, cert); err != nil {
		return "", fmt.Errorf("%w (compare the clocks of both nodes)", err)
	}
	return user, nil
}
