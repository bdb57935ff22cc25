package hub

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mesh/token"
)

// dialFunc is net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// exchangeTime bounds a TLS handshake, and each step of joining.
const exchangeTime = 10 * time.Second

// JoinRequest says who asks to join.
type JoinRequest struct {
	Token token.Token
	Name  string
	Keys  cert.Keys
	// Check may refuse the network before a use of the token is spent: it sees
	// what the pinned root certificate says. Nil accepts.
	Check func(peer.Network) error
	Dial  dialFunc         // nil: net.Dialer
	Now   func() time.Time // nil: time.Now
}

// JoinResult is what a node needs to take part.
type JoinResult struct {
	Node    peer.Node
	Network peer.Network
	Chain   [][]byte
	Hubs    []string
}

// Join asks the token's hubs, one after the other, to admit a node. A hub that
// answers decides; the next is asked only where one cannot be reached.
func Join(ctx context.Context, req JoinRequest) (JoinResult, error) {
	if req.Dial == nil {
		req.Dial = dialer()
	}
	if req.Now == nil {
		req.Now = time.Now
	}
	var unreachable []error
	for _, addr := range req.Token.Hubs {
		conn, err := req.Dial(ctx, "tcp", addr)
		if err != nil {
			unreachable = append(unreachable, cannotReach(addr, err))
			continue
		}
		res, err := req.ask(ctx, conn, addr)
		conn.Close()
		return res, err
	}
	return JoinResult{}, errors.Join(unreachable...)
}

// cannotReach says in one line that a hub does not answer.
func cannotReach(addr string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return fmt.Errorf("hub: cannot reach %s (tcp: %w); check the address, firewalls on the way, and that meshd runs there", addr, err)
}

// ask joins through one connection.
func (req JoinRequest) ask(ctx context.Context, raw net.Conn, addr string) (JoinResult, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Now()) })
	defer stop()
	raw.SetDeadline(time.Now().Add(exchangeTime))
	conn := tls.Client(raw, cert.PinnedTLSConfig(req.Token.Root, req.Now, alpnJoin))
	if err := conn.HandshakeContext(ctx); err != nil {
		return JoinResult{}, fmt.Errorf("hub: %s does not prove to be a hub of network %s: %w", addr, req.Token.Network, err)
	}
	certs := conn.ConnectionState().PeerCertificates
	network, err := cert.NetworkOf(certs[len(certs)-1].Raw)
	if err != nil {
		return JoinResult{}, err
	}
	if req.Check != nil {
		if err := req.Check(network); err != nil {
			return JoinResult{}, err
		}
	}
	challenge, err := expect(conn, typeChallenge)
	if err != nil {
		return JoinResult{}, fmt.Errorf("hub: %s: %w", addr, err)
	}
	m, err := req.answer(challenge)
	if err != nil {
		return JoinResult{}, err
	}
	if err := writeMessage(conn, m); err != nil {
		return JoinResult{}, fmt.Errorf("hub: %s: %w", addr, err)
	}
	welcome, err := expect(conn, typeWelcome)
	if err != nil {
		return JoinResult{}, fmt.Errorf("hub: %s: %w", addr, err)
	}
	return req.accept(network, welcome)
}

// expect reads a message of one type, or the error that came instead.
func expect(conn net.Conn, typ string) (message, error) {
	m, err := readMessage(conn, maxJoinFrame)
	switch {
	case err != nil:
		return m, err
	case m.Type == typeError:
		return m, m.err()
	case m.Type != typ:
		return m, fmt.Errorf("it says %q where %q is due", m.Type, typ)
	}
	return m, nil
}

// answer makes the join message.
func (req JoinRequest) answer(challenge message) (message, error) {
	id := req.Keys.ID()
	m := message{Type: typeJoin, Token: req.Token.String(), Name: req.Name, Key: id[:], Sign: req.Keys.Public()}
	shared, err := agree(req.Keys.WG[:], challenge.Key)
	if err != nil {
		return m, err
	}
	said := transcript(challenge, m)
	m.Proof = prove(shared, said)
	m.Sig = ed25519.Sign(req.Keys.Sign, said)
	return m, nil
}

// accept checks what a hub gave us.
func (req JoinRequest) accept(network peer.Network, m message) (JoinResult, error) {
	n, err := cert.Verify(m.Chain, req.Token.Root, req.Now())
	if err != nil {
		return JoinResult{}, fmt.Errorf("hub: the certificate it issued: %w", err)
	}
	if n.ID != req.Keys.ID() || !n.SignKey.Equal(req.Keys.Public()) {
		return JoinResult{}, errors.New("hub: the certificate it issued is not for this node's keys")
	}
	hubs := req.Token.Hubs
	for _, h := range m.Hubs {
		if token.ValidHub(h) == nil && len(hubs) < 8 && !contains(hubs, h) {
			hubs = append(hubs, h)
		}
	}
	return JoinResult{Node: n, Network: network, Chain: m.Chain, Hubs: hubs}, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// agree is X25519.
func agree(private, public []byte) ([]byte, error) {
	k, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("hub: key agreement: %w", err)
	}
	p, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("hub: key agreement: %w", err)
	}
	return k.ECDH(p)
}

// transcript is what a joiner proves that it said: a digest of the challenge and
// of everything in its answer, each with its length.
func transcript(challenge, m message) []byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte("meshmpi join 1"), challenge.Key, challenge.Nonce, []byte(m.Token), []byte(m.Name), m.Key, m.Sign} {
		n := len(part)
		h.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
		h.Write(part)
	}
	return h.Sum(nil)
}

// prove shows knowledge of a shared secret.
func prove(shared, said []byte) []byte {
	h := hmac.New(sha256.New, shared)
	h.Write(said)
	return h.Sum(nil)
}

// admission is the hub's end of one joining.
func (h *Hub) admission(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(exchangeTime))
	ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	challenge := message{Type: typeChallenge, Key: ephemeral.PublicKey().Bytes(), Nonce: make([]byte, 32)}
	rand.Read(challenge.Nonce)
	if err := writeMessage(conn, challenge); err != nil {
		return err
	}
	m, err := expect(conn, typeJoin)
	if err != nil {
		return err
	}
	welcome, err := h.judge(ephemeral, challenge, m)
	if err != nil {
		return errors.Join(err, writeMessage(conn, errorMessage(err)))
	}
	return writeMessage(conn, welcome)
}

// judge admits whoever made the join message, or says why not.
func (h *Hub) judge(ephemeral *ecdh.PrivateKey, challenge, m message) (message, error) {
	if len(m.Key) != len(peer.ID{}) || len(m.Sign) != ed25519.PublicKeySize {
		return message{}, fmt.Errorf("%w: keys of the wrong length", ErrRefused)
	}
	shared, err := agree(ephemeral.Bytes(), m.Key)
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	said := transcript(challenge, m)
	if !hmac.Equal(m.Proof, prove(shared, said)) || !ed25519.Verify(m.Sign, said, m.Sig) {
		return message{}, fmt.Errorf("%w: it does not prove to hold its keys", ErrRefused)
	}
	t, err := token.Parse(m.Token)
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	n, chain, err := h.ledger.admit(&t, applicant{id: peer.ID(m.Key), signKey: m.Sign, name: m.Name, site: h.cfg.Self.Site}, h.cfg.Now())
	if err != nil {
		return message{}, err
	}
	h.log.Info("admitted", "name", n.Name, "site", n.Site, "addr", n.Addr4)
	h.board.enter(n, chain)
	return message{Type: typeWelcome, Chain: chain, Hubs: h.cfg.Advertise}, nil
}
