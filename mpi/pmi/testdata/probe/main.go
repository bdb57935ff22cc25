// Command probe is a rank that uses a launcher's wire-up service and says what
// it got, for tests under launchers of others.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/mpi/pmi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pmi.Dial(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	mode := ""
	if len(args) > 0 {
		mode = args[0]
	}
	switch mode {
	case "abort":
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 1 {
			c.Abort(9)
		}
		select {}
	case "child":
		return child(ctx, c)
	case "spawn":
		if err := spawn(ctx, c); err != nil {
			return err
		}
	}
	if err := exchange(ctx, c); err != nil {
		return err
	}
	if mode == "names" {
		if err := names(ctx, c); err != nil {
			return err
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d app %d under %s\n", c.Rank(), c.Size(), c.Appnum(), c.Launcher())
	return c.Finalize(ctx)
}

// card is longer than one value may be, and full of what words are not.
func card(rank int) string {
	return strings.Repeat(fmt.Sprintf("card %d =%%;\n/(é)", rank), 150)
}

func exchange(ctx context.Context, c *pmi.Client) error {
	if err := c.Put(fmt.Sprint("card-", c.Rank()), card(c.Rank())); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	var keys []string
	for i := range c.Size() {
		keys = append(keys, fmt.Sprint("card-", i))
	}
	cards, err := c.GetAll(keys)
	if err != nil {
		return err
	}
	for i, got := range cards {
		if got != card(i) {
			return fmt.Errorf("rank %d's card is %.80q", i, got)
		}
	}
	if _, err := c.Get("nobody-s"); !errors.Is(err, pmi.ErrNoKey) {
		return fmt.Errorf("a key that nobody has put: %v", err)
	}
	return nil
}

func names(ctx context.Context, c *pmi.Client) error {
	const port = "port of=rank;0 100%"
	if c.Rank() == 0 {
		if err := c.Publish("ocean model", port); err != nil {
			return err
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	got, err := c.Lookup("ocean model")
	if err != nil || got != port {
		return fmt.Errorf("look up: %q, %v", got, err)
	}
	if _, err := c.Lookup("nobody"); !errors.Is(err, pmi.ErrNoName) {
		return fmt.Errorf("look up a name that nobody has published: %v", err)
	}
	if err := c.Barrier(ctx); err != nil || c.Rank() != 0 {
		return err
	}
	if err := c.Unpublish("ocean model"); err != nil {
		return err
	}
	if _, err := c.Lookup("ocean model"); !errors.Is(err, pmi.ErrNoName) {
		return fmt.Errorf("look up a name taken back: %v", err)
	}
	return nil
}

func spawn(ctx context.Context, c *pmi.Client) error {
	if c.Rank() != 0 {
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	codes, err := c.Spawn(ctx, pmi.SpawnRequest{
		Apps: []pmi.SpawnApp{{N: 2, Prog: exe, Args: []string{"child", "a b"}}, {N: 1, Prog: exe, Args: []string{"child", "c"}}},
		Keys: map[string]string{"parent": card(0)},
	})
	if err == nil && len(codes) != 3 {
		err = fmt.Errorf("got codes %v", codes)
	}
	return err
}

func child(ctx context.Context, c *pmi.Client) error {
	got, err := c.Get("parent")
	if err != nil {
		return err
	}
	if err := exchange(ctx, c); err != nil {
		return err
	}
	fmt.Printf("child %d of %d app %d %q: parent known %t, spawned %t\n", c.Rank(), c.Size(), c.Appnum(), os.Args[2], got == card(0), c.Spawned())
	return c.Finalize(ctx)
}
