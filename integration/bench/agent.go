package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// plainAgent runs commands on a host for a caller elsewhere on the LAN, without
// identity, encryption or process of its own: the cheapest remote start there
// can be, to compare launchers with. It is no part of meshmpi and opens its host
// to everybody on the lab's LAN.
type plainAgent struct {
	script string // for plm_rsh_agent: HOST COMMAND…
	ln     net.Listener
	conns  sync.WaitGroup
	cancel context.CancelFunc
}

// agentScript is the caller's side: the command line goes over, the output and
// the exit code, on the last line, come back.
const agentScript = `#!/bin/bash
host=$1; shift
exec 3<>"/dev/tcp/$host/%d" || exit 255
printf '%%s\n' "$*" >&3
code=255
while IFS= read -r line <&3; do
	case $line in
	plain-agent-exit:*) code=${line#*:};;
	*) printf '%%s\n' "$line";;
	esac
done
exit "$code"
`

const plainAgentPort = 514 // rsh's

// startPlainAgent listens on the host's LAN address until close.
func startPlainAgent(ctx context.Context, h *lab.Host, dir string) (*plainAgent, error) {
	a := &plainAgent{script: filepath.Join(dir, "plain-agent")}
	if err := os.WriteFile(a.script, fmt.Appendf(nil, agentScript, plainAgentPort), 0o755); err != nil {
		return nil, err
	}
	err := h.Do(func() (err error) {
		a.ln, err = net.Listen("tcp4", net.JoinHostPort(h.Addr4.String(), strconv.Itoa(plainAgentPort)))
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
				serveCommand(ctx, h, conn)
			}()
		}
	}()
	return a, nil
}

// serveCommand runs the one line that comes in.
func serveCommand(ctx context.Context, h *lab.Host, conn net.Conn) {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	cmd := h.Command(ctx, "/bin/sh", "-c", line)
	cmd.Stdout, cmd.Stderr = conn, conn
	code := 0
	if err := cmd.Run(); err != nil {
		code = 255
		if cmd.ProcessState != nil {
			code = cmd.ProcessState.ExitCode()
		}
	}
	fmt.Fprintf(conn, "plain-agent-exit:%d\n", code) // a caller who has gone does not mind
}

// close ends the agent and what runs under it.
func (a *plainAgent) close() {
	_ = a.ln.Close()
	a.cancel()
	a.conns.Wait()
}
