package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Agent starts commands on hosts for a caller on one of them, as ssh would, without
// identity, encryption or process of its own: the cheapest remote start there can be. It
// is no part of meshmpi and opens what it reaches to everybody in the lab.
type Agent struct {
	Script string // for a launcher: HOST COMMAND…

	command func(ctx context.Context, host, line string) *Cmd
	ln      net.Listener
	conns   sync.WaitGroup
	cancel  context.CancelFunc
}

const agentPort = 514 // rsh's

// agentScript is the caller's side: the host and the command line go over, the output and
// the exit code, on the last line, come back.
const agentScript = `#!/bin/bash
host=$1; shift
exec 3<>"/dev/tcp/%s/%d" || exit 255
printf '%%s\n' "$host" "$*" >&3
code=255
while IFS= read -r line <&3; do
	case $line in
	plain-agent-exit:*) code=${line#*:};;
	*) printf '%%s\n' "$line";;
	esac
done
exit "$code"
`

// StartAgent listens at the host's address until Close. The script is a file in dir, and
// command is what runs a line of it on the host that its caller has named; nil: there is
// no such host.
func (h *Host) StartAgent(ctx context.Context, dir string, command func(ctx context.Context, host, line string) *Cmd) (*Agent, error) {
	a := &Agent{Script: filepath.Join(dir, "plain-agent"), command: command}
	if err := os.WriteFile(a.Script, fmt.Appendf(nil, agentScript, h.Addr4, agentPort), 0o755); err != nil {
		return nil, err
	}
	err := h.Do(func() (err error) {
		a.ln, err = net.Listen("tcp4", net.JoinHostPort(h.Addr4.String(), strconv.Itoa(agentPort)))
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, a.cancel = context.WithCancel(ctx)
	a.conns.Add(1)
	go func() { // ends with the listener
		defer a.conns.Done()
		for {
			conn, err := a.ln.Accept()
			if err != nil {
				return
			}
			a.conns.Add(1)
			go func() { // ends with the command, at the latest with ctx
				defer a.conns.Done()
				defer conn.Close()
				a.serve(ctx, conn)
			}()
		}
	}()
	return a, nil
}

// serve runs the one command that comes in.
func (a *Agent) serve(ctx context.Context, conn net.Conn) {
	in := bufio.NewReader(conn)
	host, err := in.ReadString('\n')
	if err != nil {
		return
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	code := 255
	if cmd := a.command(ctx, strings.TrimSuffix(host, "\n"), line); cmd != nil {
		cmd.Stdout, cmd.Stderr = conn, conn
		if err := cmd.Run(); err == nil {
			code = 0
		} else if cmd.ProcessState != nil {
			code = cmd.ProcessState.ExitCode()
		}
	}
	fmt.Fprintf(conn, "plain-agent-exit:%d\n", code) // a caller who has gone does not mind
}

// Close ends the agent and what runs under it.
func (a *Agent) Close() {
	_ = a.ln.Close()
	a.cancel()
	a.conns.Wait()
}
