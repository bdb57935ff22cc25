package exec

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// handshakeTime bounds the SSH handshake, on both sides. It is long because a
// TCP connection may stall for several seconds while paths change.
const handshakeTime = time.Minute

// userKey is the permissions' extension that carries the vouched user.
const userKey = "vouched-user@meshmpi"

// Session serves one connection: it is the body of the hidden command that
// Serve starts, and ends with the connection or with the command that the
// client runs, whichever is first, leaving no process of it behind. connFD is
// the accepted connection, cfgFD the configuration; Session closes both. It
// changes the whole process (umask, signals, adoption of orphans), so nothing
// else may run in it.
func Session(connFD, cfgFD *os.File) error {
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil { // before Linux 5.11
		for fd := 3; fd < 256; fd++ {
			syscall.CloseOnExec(fd)
		}
	}
	raw, err := io.ReadAll(io.LimitReader(io.NewSectionReader(cfgFD, 0, maxConfig+1), maxConfig+1))
	cfgFD.Close()
	if err != nil {
		return fmt.Errorf("exec: session: configuration: %w", err)
	}
	cfg, err := parseConfig(raw)
	if err != nil {
		return err
	}
	conn, err := net.FileConn(connFD)
	connFD.Close()
	if err != nil {
		return fmt.Errorf("exec: session: connection: %w", err)
	}
	defer conn.Close()
	syscall.Umask(0o022)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("exec: session: adopt orphans: %w", err)
	}
	s := &session{cfg: cfg, conn: conn}
	if cfg.Report {
		s.report = os.NewFile(reportFD, "report")
		defer s.report.Close()
	}
	if err := s.run(); err != nil {
		s.say("%s from %s: %v", cfg.Caller.Node, cfg.Source, err)
		return err
	}
	return nil
}

type session struct {
	cfg    sessionConfig
	conn   net.Conn
	report *os.File // nil where nobody listens

	caller  Caller  // known after the handshake
	login   string  // what the caller asks to be here
	account account // what it is
}

// say tells the parent in one line; it may be gone, which changes nothing.
func (s *session) say(format string, args ...any) {
	if s.report != nil {
		fmt.Fprintf(s.report, format+"\n", args...)
	}
}

func (s *session) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { watchSilence(ctx, s.conn, s.cfg.Silence) })

	s.conn.SetDeadline(time.Now().Add(handshakeTime))
	server, channels, requests, err := s.handshake()
	if err != nil {
		return err
	}
	s.conn.SetDeadline(time.Time{})
	defer server.Close()
	s.caller = s.cfg.Caller
	s.caller.User = server.Permissions.Extensions[userKey]
	s.login = server.User()
	go ssh.DiscardRequests(requests) // ends with the connection

	ch, chRequests, err := s.firstChannel(channels)
	if err != nil || ch == nil {
		return err
	}
	go func() { // ends with the connection
		for extra := range channels {
			extra.Reject(ssh.ResourceShortage, "one command a connection")
		}
	}()
	gone := make(chan struct{})
	go func() { // ends with the connection
		server.Wait()
		close(gone)
	}()
	return s.serve(ch, chRequests, gone)
}

func (s *session) handshake() (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	hostKey, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(s.cfg.Seed))
	if err != nil {
		return nil, nil, nil, err
	}
	config := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-meshmpi",
		MaxAuthTries:  4,
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			err := errors.New("a bare key, not a certificate")
			var user string
			if cert, ok := key.(*ssh.Certificate); ok {
				user, err = vouched(cert, s.cfg.Caller.Node, s.cfg.SignKey, time.Now())
			}
			if err != nil {
				return nil, &ssh.BannerError{Err: err, Message: refused + err.Error() + "\n"}
			}
			return &ssh.Permissions{Extensions: map[string]string{userKey: user}}, nil
		},
	}
	config.AddHostKey(hostKey)
	return ssh.NewServerConn(s.conn, config)
}

// firstChannel returns the session channel once the caller's user is known to
// be allowed; a refusal tells the client why. It is nil when the client leaves.
func (s *session) firstChannel(channels <-chan ssh.NewChannel) (ssh.Channel, <-chan *ssh.Request, error) {
	for next := range channels {
		if next.ChannelType() != "session" {
			next.Reject(ssh.UnknownChannelType, "only sessions are served")
			continue
		}
		var err error
		if s.account, err = admit(context.Background(), s.cfg.Policy, s.caller, s.login); err != nil {
			next.Reject(ssh.Prohibited, strings.TrimPrefix(err.Error(), "exec: "))
			return nil, nil, err
		}
		return next.Accept()
	}
	return nil, nil, nil
}

// serve answers requests until the command has ended or the connection is gone.
func (s *session) serve(ch ssh.Channel, requests <-chan *ssh.Request, gone <-chan struct{}) error {
	defer ch.Close()
	signals := make(chan os.Signal, 8) // as many kinds as are asked for
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer signal.Stop(signals)
	var env environment
	for {
		select {
		case <-gone:
			return nil
		case sig := <-signals:
			if sig != syscall.SIGPIPE {
				return nil
			}
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			if req.Type != "exec" {
				req.Reply(req.Type == "env" && env.add(req.Payload), nil)
				continue
			}
			c, err := s.start(ch, req.Payload, env.list)
			req.Reply(true, nil)
			if err != nil {
				fmt.Fprintf(ch.Stderr(), "meshrsh: node %s: %v\n", s.cfg.Node, err)
				return errors.Join(err, sendExit(ch, CodeFailed))
			}
			return errors.Join(c.follow(ch, requests, signals, gone), linger(ch, signals, gone))
		}
	}
}

// linger ends the channel and leaves the end of the connection to the client:
// closing a TCP connection with anything unread, such as the client's window
// adjustments, would reset it and lose output that is still on its way.
func linger(ch ssh.Channel, signals <-chan os.Signal, gone <-chan struct{}) error {
	err := ch.Close()
	for {
		select {
		case <-gone:
		case sig := <-signals:
			if sig == syscall.SIGPIPE {
				continue
			}
		}
		if errors.Is(err, io.EOF) { // the client was first
			err = nil
		}
		return err
	}
}
