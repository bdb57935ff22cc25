// Command meshrsh is the remote-shell agent for anybody's mpirun: it runs a
// command on another node of the network and passes streams, signals and the
// exit code through.
//
// Its arguments are parsed by hand, since launchers call agents the way they
// call rsh: whatever follows the host belongs to the command.
package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mpishim"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "meshrsh: %v\n", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Println(mpishim.AgentUsage)
		return 0, nil
	}
	call, err := mpishim.ParseAgent(args)
	if err != nil {
		return exec.CodeFailed, err
	}
	signals := make(chan os.Signal, 16) // more than the kinds asked for
	signal.Notify(signals, exec.Heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)...)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return exec.CodeFailed, err
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return exec.CodeFailed, err
	}
	ctx := context.Background()
	ticket, err := api.Dial(api.StateDir(call.State)).Ticket(ctx, call.Host, call.Login, string(ssh.MarshalAuthorizedKey(key.PublicKey())))
	if err != nil {
		return exec.CodeFailed, err
	}
	opt := exec.RunOptions{Command: mpishim.AgentCommand(call.Command), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals}
	if call.NoStdin {
		opt.Stdin = nil
	}
	return exec.Run(ctx, ticket, key, opt)
}
