package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

// service is the name that is published, patience how long it is asked for.
const (
	service  = "meshmpi-replace"
	patience = 20 * time.Second
)

// meet has one rank serve, and die, and the others look for whom to be served by.
func meet(c *mpi.Comm, kill int) error {
	color := 0
	if c.Rank() == kill {
		color = 1
	}
	half, err := c.Split(color, 0)
	if err != nil {
		return err
	}
	if c.Rank() == kill {
		return serve(half, true)
	}
	x, first, err := served(half)
	if err != nil {
		return err
	}
	if _, err := mpi.Recv(x, make([]byte, 1), 0, 0); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("a receive from the dead ends with %v", err)
	}
	node, _ := c.Node(kill)
	if _, err := another(half, node, "name"); err != nil {
		return err
	}
	x, second, err := served(half)
	if err != nil {
		return err
	}
	node, _ = c.Node(c.Rank())
	fmt.Printf("rank %d on %s was served by %s, then by %s\n", c.Rank(), node, first, second)
	return x.Disconnect()
}

// serve publishes a port and tells those who connect who it is.
func serve(c *mpi.Comm, dies bool) error {
	w := c.World()
	port, err := w.OpenPort()
	if err != nil {
		return err
	}
	end := time.Now().Add(patience)
	for {
		err := w.PublishName(service, port)
		if err == nil {
			break
		}
		if time.Now().After(end) { // the launcher has not heard yet that the one before is dead
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	x, err := c.Accept(port, 0)
	if err != nil {
		return err
	}
	node, _ := c.Node(0)
	who := fmt.Appendf(nil, "%-60s", fmt.Sprintf("%s, pid %d", node, os.Getpid()))
	if err := mpi.Bcast(x, who, mpi.Root); err != nil {
		return err
	}
	for r := range x.RemoteSize() { // what has not arrived would die with us
		if _, err := mpi.Recv(x, make([]byte, 1), r, 0); err != nil {
			return err
		}
	}
	if dies {
		return die()
	}
	if err := w.UnpublishName(service); err != nil {
		return err
	}
	return x.Disconnect()
}

// served connects to who has the name, and returns who that is. Meanwhile the name
// may be nobody's, or still that of the dead.
func served(c *mpi.Comm) (x *mpi.Comm, who string, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if x, err = connect(c); err == nil {
			break
		}
		if !errors.Is(err, mpi.ErrPort) || time.Now().After(end) {
			return nil, "", err
		}
	}
	text := make([]byte, 60)
	if err := mpi.Bcast(x, text, 0); err != nil {
		return nil, "", err
	}
	return x, strings.TrimSpace(string(text)), mpi.Send(x, []byte{1}, 0, 0)
}

// connect tries once. A name that is not there is a port that is none, to all.
func connect(c *mpi.Comm) (*mpi.Comm, error) {
	port := ""
	if c.Rank() == 0 {
		var err error
		if port, err = c.World().LookupName(service); err != nil && !errors.Is(err, mpi.ErrName) {
			return nil, err
		}
	}
	return c.Connect(port, 0)
}
