// Echo is a TCP server that sends back what it gets, and a client that checks it.
// With --join either is a node of a meshmpi network by itself, with the token in
// $MESH_TOKEN; without, it uses the host's network as any program does.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/overlay"
)

// size is what a client has echoed, in bytes.
const size = 4 << 20

// network is what a program dials and listens on.
type network interface {
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	Listen(network, addr string) (net.Listener, error)
}

// kernel is the host's network.
type kernel struct{}

func (kernel) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}
func (kernel) Listen(network, addr string) (net.Listener, error) { return net.Listen(network, addr) }

func main() {
	join := flag.Bool("join", false, "be a node, with the token in $MESH_TOKEN")
	name := flag.String("name", "", "the node's name")
	flag.Parse()
	if err := run(*join, *name, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(join bool, name string, args []string) (err error) {
	if len(args) != 2 || args[0] != "serve" && args[0] != "dial" {
		return fmt.Errorf("usage: echo [-join] [-name NAME] serve :PORT | dial HOST:PORT")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var n network = kernel{}
	if join {
		node, err := overlay.Join(ctx, overlay.Config{Name: name})
		if err != nil {
			return err
		}
		defer node.Close()
		fmt.Println("node", node.Name(), "at", node.Addrs()[0])
		n = node
	}
	if args[0] == "dial" {
		return dial(ctx, n, args[1])
	}
	return serve(ctx, n, args[1])
}

func serve(ctx context.Context, n network, addr string) error {
	ln, err := n.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	context.AfterFunc(ctx, func() { ln.Close() })
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() { // ends with its connection
			defer c.Close()
			_, _ = io.Copy(c, c) // the client says what is missing
		}()
	}
}

func dial(ctx context.Context, n network, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	began := time.Now()
	c, err := n.Dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	connected := time.Since(began)
	sent, got := make([]byte, size), make([]byte, size)
	rand.Read(sent)
	go func() { _, _ = c.Write(sent) }() // ends with the connection
	if err := c.SetReadDeadline(began.Add(time.Minute)); err != nil {
		return err
	}
	if n, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("echo: %d bytes came back: %w", n, err)
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("echo: other bytes came back")
	}
	fmt.Printf("echoed %d bytes, connected in %v, done in %v\n", size, connected.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return nil
}
