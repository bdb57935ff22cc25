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
	"slices"
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
	Dial  dialFunc         // nil: a net.Dialer, with small segments
	Now   func() time.Time // nil: time.Now
}

// JoinResult is what a node needs to take part.
type JoinResult struct {
	Node    peer.Node
	Network peer.Network
	Chain   [][]byte
	Hubs    []string
}

// Join asks the token's hubs, one after the other, to admit a node. The first
// that answers decides; the next is asked where one cannot be reached, proves to
// be no hub of the network, cannot tell now, or falls silent: asking again with the
// same keys spends no second use of the token. Errors are one line; those that a hub
// gives are ErrTokenUsed and the like.
func Join(ctx context.Context, req JoinRequest) (JoinResult, error) {
	if err := cert.ValidLabel(req.Name); err != nil {
		return JoinResult{}, err
	}
	if req.Dial == nil {
		req.Dial = dialer()
	}
	if req.Now == nil {
		req.Now = time.Now
	}
	var failed error
	for _, addr := range req.Token.Hubs {
		res, err := req.ask(ctx, addr)
		var no *noAnswer
		switch {
		case ctx.Err() != nil:
			return JoinResult{}, fmt.Errorf("hub: join: %w", ctx.Err())
		case !errors.As(err, &no):
			return res, err
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return JoinResult{}, failed
}

// noAnswer is an error that another hub may not have.
type noAnswer struct{ error }

func (e *noAnswer) Unwrap() error { return e.error }

// cannotReach says in one line that a hub does not answer.
func cannotReach(addr string, err error) error {
	return fmt.Errorf("hub: cannot reach %s (tcp: %w); check the address, firewalls on the way, and that meshd runs there", addr, bare(err))
}

// bare strips from a network error what the reader knows or does not care for:
// the operation and the ports, which differ from attempt to attempt.
func bare(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// noHub says in one line why what answers at addr is not taken for a hub.
func noHub(addr string, err error) error {
	var garbage tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.Is(err, cert.ErrUntrusted), errors.Is(err, cert.ErrExpired), errors.Is(err, cert.ErrNotYetValid):
		return fmt.Errorf("hub: %s: %w", addr, err)
	case errors.As(err, &garbage):
		return fmt.Errorf("hub: %s does not speak TLS, so it is no hub; check the address and port", addr)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("hub: %s takes connections but says nothing for %v; check that the address is a hub's and that meshd runs well there", addr, exchangeTime)
	}
	return fmt.Errorf("hub: %s broke off before it had proven to be a hub (%w); check the address and port, or try again", addr, bare(err))
}

// ask joins through one hub.
func (req JoinRequest) ask(ctx context.Context, addr string) (JoinResult, error) {
	raw, err := req.Dial(ctx, "tcp", addr)
	if err != nil {
		return JoinResult{}, &noAnswer{cannotReach(addr, err)}
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Now()) })
	defer stop()
	raw.SetDeadline(time.Now().Add(exchangeTime))
	conn := tls.Client(raw, cert.PinnedTLSConfig(req.Token.Root, req.Now, alpnJoin))
	if err := conn.HandshakeContext(ctx); err != nil {
		return JoinResult{}, &noAnswer{noHub(addr, err)}
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
	challenge, err := expect(conn, typeChallenge, maxJoinFrame)
	if err != nil {
		return JoinResult{}, brokenOff(addr, err)
	}
	if err := checkClock(addr, challenge.Time, req.Now()); err != nil {
		return JoinResult{}, &noAnswer{err} // before a certificate is issued that does not hold here yet
	}
	m, err := req.answer(challenge)
	if err != nil {
		return JoinResult{}, err
	}
	if err := writeMessage(conn, m); err != nil {
		return JoinResult{}, brokenOff(addr, err)
	}
	welcome, err := expect(conn, typeWelcome, maxJoinFrame)
	if err != nil {
		return JoinResult{}, brokenOff(addr, err)
	}
	return req.accept(network, welcome)
}

// brokenOff tells a hub's refusal, which decides, from its silence.
func brokenOff(addr string, err error) error {
	if no := (*refusal)(nil); errors.As(err, &no) {
		err = fmt.Errorf("hub: %s: %w", addr, err)
		if errors.Is(err, ErrNotNow) {
			return &noAnswer{err}
		}
		return err
	}
	return &noAnswer{fmt.Errorf("hub: %s broke off while it was asked to admit this node (%w); try again", addr, bare(err))}
}

// expect reads a message of one type, or the error that came instead.
func expect(conn net.Conn, typ string, limit int) (message, error) {
	m, err := readMessage(conn, limit)
	switch {
	case err != nil:
		return m, err
	case m.Type == typeError:
		return m, m.err()
	case m.Type != typ:
		return m, fmt.Errorf("it says %.20q where %q is due", m.Type, typ)
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
	if n.ID != req.Keys.ID() || !n.SignKey.Equal(req.Keys.Public()) || n.Name != req.Name {
		return JoinResult{}, errors.New("hub: the certificate it issued is not for this node's keys and name")
	}
	hubs := slices.Clone(req.Token.Hubs)
	for _, h := range m.Hubs {
		if token.ValidHub(h) == nil && len(hubs) < token.MaxHubs && !slices.Contains(hubs, h) {
			hubs = append(hubs, h)
		}
	}
	return JoinResult{Node: n, Network: network, Chain: m.Chain, Hubs: hubs}, nil
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
	challenge := message{Type: typeChallenge, Key: ephemeral.PublicKey().Bytes(), Nonce: make([]byte, 32), Time: h.cfg.Now()}
	rand.Read(challenge.Nonce)
	if err := writeMessage(conn, challenge); err != nil {
		return err
	}
	m, err := expect(conn, typeJoin, maxNodeFrame)
	if err != nil {
		return err
	}
	welcome, err := h.judge(ephemeral, challenge, m)
	if err != nil {
		_ = writeMessage(conn, errorMessage(err)) // why it was refused says more than that it left
		return err
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
	h.deciding.Lock()
	defer h.deciding.Unlock()
	if h.board.full(peer.ID(m.Key)) {
		return message{}, &refusal{ErrFull, fmt.Sprintf("the network has %d nodes, as many as it can; remove nodes that have left (meshctl node remove)", maxRecords)}
	}
	n, chain, err := h.ledger.admit(&t, applicant{id: peer.ID(m.Key), signKey: m.Sign, name: m.Name, site: h.cfg.Self.Site}, h.cfg.Now())
	if err != nil {
		return message{}, verdict(err)
	}
	h.log.Info("admitted", "name", n.Name, "site", n.Site, "addr", n.Addr4)
	h.board.enter(n, chain)
	return message{Type: typeWelcome, Chain: chain, Hubs: h.cfg.Advertise}, nil
}

// verdict tells what is wrong with a joiner from what is wrong here, as a full disk:
// that must not have the joiner throw away keys that were admitted before.
func verdict(err error) error {
	if errors.Is(err, ErrRefused) {
		return err
	}
	for _, kind := range codes {
		if errors.Is(err, kind) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrNotNow, err)
}
