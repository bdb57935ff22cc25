package exec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// RunOptions say what to run and what to connect it to.
type RunOptions struct {
	Command string           // for the remote user's shell
	Env     []string         // NAME=value, set before the command runs
	Stdin   io.Reader        // nil is empty
	Stdout  io.Writer        // nil discards
	Stderr  io.Writer        // nil discards
	Signals <-chan os.Signal // passed on to the command's process group; nil for none

	// Dial connects; nil is a net.Dialer's. It may take half a minute.
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	Silence time.Duration // how long the node may be silent; 0 is a minute
}

// Run runs a command on the ticket's node and returns its exit code, 128+n if
// signal n ended it. When the command could not be run or its fate is unknown,
// the code is CodeFailed and err is one line that names the node. When ctx
// ends, the command gets SIGTERM and, two seconds later, loses its connection,
// which ends all that it started. Run may leave one goroutine blocked in a
// read of Stdin.
func Run(ctx context.Context, t Ticket, key ssh.Signer, opt RunOptions) (code int, err error) {
	conn, err := dialTicket(ctx, t, opt)
	if err != nil {
		return CodeFailed, err
	}
	defer conn.Close()
	watchCtx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	silence := opt.Silence
	if silence <= 0 {
		silence = time.Minute
	}
	watching.Go(func() { watchSilence(watchCtx, conn, silence) })

	client, err := handshake(ctx, conn, t, key)
	if err != nil {
		return CodeFailed, err
	}
	defer client.Close()
	session, err := client.NewSession()
	var no *ssh.OpenChannelError
	if errors.As(err, &no) {
		return CodeFailed, fmt.Errorf("exec: node %s refused: %s", t.Node, oneLine(no.Message))
	}
	if err != nil {
		return CodeFailed, fmt.Errorf("exec: node %s: open a session: %w", t.Node, err)
	}
	return runSession(ctx, t, client, session, opt)
}

// dialTicket tries the node's addresses in turn.
func dialTicket(ctx context.Context, t Ticket, opt RunOptions) (net.Conn, error) {
	dial := opt.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	}
	err := errors.New("it has no address")
	for _, addr := range t.Addrs {
		var conn net.Conn
		if conn, err = dial(ctx, "tcp", addr.String()); err == nil {
			return conn, nil
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("exec: node %s: %w", t.Node, context.Cause(ctx))
	}
	return nil, fmt.Errorf("exec: node %s does not answer: %w (is meshd running there? try: meshctl ping %s)", t.Node, err, t.Node)
}

func handshake(ctx context.Context, conn net.Conn, t Ticket, key ssh.Signer) (*ssh.Client, error) {
	config, banner, err := clientConfig(t, key)
	if err != nil {
		return nil, fmt.Errorf("exec: node %s: ticket: %w", t.Node, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(handshakeTime))
	heard := &overheard{Conn: conn}
	c, channels, requests, err := ssh.NewClientConn(heard, t.Node, config)
	if err != nil {
		if why := cmp.Or(heard.refusal(), banner()); why != "" {
			return nil, fmt.Errorf("exec: node %s refused: %s", t.Node, why)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("exec: node %s: %w", t.Node, context.Cause(ctx))
		}
		return nil, fmt.Errorf("exec: node %s: no session: %w (see the log of meshd there)", t.Node, err)
	}
	conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, channels, requests), nil
}

// clientConfig trusts the ticket's host key alone and shows its certificate.
func clientConfig(t Ticket, key ssh.Signer) (*ssh.ClientConfig, func() string, error) {
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(t.HostKey))
	if err != nil {
		return nil, nil, fmt.Errorf("host key: %w", err)
	}
	pub, _, _, _, err := ssh.ParseAuthorizedKey([]byte(t.Cert))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	cert, ok := pub.(*ssh.Certificate)
	if !ok {
		return nil, nil, errors.New("certificate: a bare key")
	}
	signer, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	var said string
	return &ssh.ClientConfig{
		User:              t.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   ssh.FixedHostKey(hostKey),
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		ClientVersion:     "SSH-2.0-meshmpi",
		BannerCallback: func(message string) error {
			if why, ok := strings.CutPrefix(message, refused); ok {
				said = oneLine(why)
			}
			return nil
		},
	}, func() string { return said }, nil
}

// runSession starts the command and waits, watching ctx and signals.
func runSession(ctx context.Context, t Ticket, client *ssh.Client, session *ssh.Session, opt RunOptions) (int, error) {
	for _, kv := range opt.Env {
		name, value, _ := strings.Cut(kv, "=")
		if err := session.Setenv(name, value); err != nil {
			return CodeFailed, fmt.Errorf("exec: node %s does not accept the variable %s: %w", t.Node, name, err)
		}
	}
	session.Stdout, session.Stderr = opt.Stdout, opt.Stderr
	stdin, err := session.StdinPipe()
	if err != nil {
		return CodeFailed, fmt.Errorf("exec: node %s: %w", t.Node, err)
	}
	if err := session.Start(opt.Command); err != nil {
		return CodeFailed, fmt.Errorf("exec: node %s: start: %w", t.Node, err)
	}
	go func() { // ends with Stdin, or at the first write after the command has ended
		if opt.Stdin != nil {
			io.Copy(stdin, opt.Stdin)
		}
		stdin.Close()
	}()
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }() // ends with the connection
	done := ctx.Done()
	var hangUp <-chan time.Time
	for {
		select {
		case err := <-ended:
			return exitCode(ctx, t, err)
		case sig := <-opt.Signals:
			if s, ok := sig.(syscall.Signal); ok {
				session.Signal(ssh.Signal(signalName(s)))
			}
		case <-done:
			done = nil
			session.Signal(ssh.SIGTERM)
			hangUp = time.After(grace)
		case <-hangUp:
			client.Close()
		}
	}
}

func exitCode(ctx context.Context, t Ticket, err error) (int, error) {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Signal() != "":
		return CodeSignal + signalNumber(exit.Signal()), nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	case ctx.Err() != nil:
		return CodeFailed, fmt.Errorf("exec: node %s: %w", t.Node, context.Cause(ctx))
	}
	return CodeFailed, fmt.Errorf("exec: lost node %s while a command ran there (try: meshctl ping %s)", t.Node, t.Node)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// overheard keeps the first bytes that arrive: a server that refuses says why
// in a line before the SSH version, which the ssh package skips.
type overheard struct {
	net.Conn
	first []byte
}

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if room := 512 - len(o.first); room > 0 {
		o.first = append(o.first, p[:min(n, room)]...)
	}
	return n, err
}

func (o *overheard) refusal() string {
	line, _, _ := bytes.Cut(o.first, []byte("\n"))
	if why, ok := bytes.CutPrefix(line, []byte(refused)); ok {
		return oneLine(string(why))
	}
	return ""
}
