// Pmihello is a rank of nothing but the wire-up service, for tests of launchers:
// it says who it is, exchanges cards with the others, and ends as it is told to.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mpi/pmi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pmihello:", err)
		os.Exit(1)
	}
}

// modes is what a rank can do after it has met the others.
func modes() map[string]func(ctx context.Context, c *pmi.Client, args []string) error {
	return map[string]func(ctx context.Context, c *pmi.Client, args []string) error{
		"hello":   hello,
		"exit":    exits,
		"miss":    misses,
		"kill":    kills,
		"abort":   aborts,
		"leave":   leaves,
		"survive": survive,
		"wait":    wait,
		"cat":     cat,
		"spam":    spam,
		"spawn":   spawn,
		"barren":  barren,
		"child":   hello,
		"joins":   joins,
		"joined":  joined,
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"hello"}
	}
	mode, ok := modes()[args[0]]
	if !ok {
		return fmt.Errorf("no mode %q", args[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := pmi.Dial(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := meet(ctx, c); err != nil {
		return err
	}
	if err := mode(ctx, c, args[1:]); err != nil {
		return err
	}
	return c.Finalize(ctx)
}

// card is longer than a value may be on the wire.
func card(rank int) string { return strings.Repeat("card of "+strconv.Itoa(rank)+"\n", 200) }

// meet puts a card, gets all, and checks them.
func meet(ctx context.Context, c *pmi.Client) error {
	if err := c.Put("card-"+strconv.Itoa(c.Rank()), card(c.Rank())); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	keys := make([]string, c.Size())
	for i := range keys {
		keys[i] = "card-" + strconv.Itoa(i)
	}
	cards, err := c.GetAll(keys)
	if err != nil {
		return err
	}
	for i, got := range cards {
		if got != card(i) {
			return fmt.Errorf("the card of rank %d is %.40q", i, got)
		}
	}
	return nil
}

// hello says where the rank is, and what it was given.
func hello(ctx context.Context, c *pmi.Client, args []string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	node, site, addr := os.Getenv("MESH_NODE"), os.Getenv("MESH_SITE"), os.Getenv("MESH_ADDRESS")
	fmt.Printf("rank %d of %d app %d on %s site %s at %s in %s FOO=%s %q\n", c.Rank(), c.Size(), c.Appnum(), node, site, addr, dir, os.Getenv("FOO"), args)
	return c.Barrier(ctx)
}

// ending has the last rank end in its way, for which the others wait.
func ending(c *pmi.Client, how func()) error {
	if c.Rank() == c.Size()-1 {
		how()
	}
	select {}
}

func exits(_ context.Context, c *pmi.Client, _ []string) error {
	return ending(c, func() { os.Exit(3) })
}

// misses has the last rank end and the others fail for want of it.
func misses(ctx context.Context, c *pmi.Client, _ []string) error {
	if c.Rank() == c.Size()-1 {
		os.Exit(3)
	}
	return c.Barrier(ctx)
}

func kills(_ context.Context, c *pmi.Client, _ []string) error {
	return ending(c, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
}

func aborts(_ context.Context, c *pmi.Client, _ []string) error {
	return ending(c, func() { c.Abort(7) })
}

func leaves(_ context.Context, c *pmi.Client, _ []string) error {
	return ending(c, func() { os.Exit(0) })
}

func wait(context.Context, *pmi.Client, []string) error {
	fmt.Println("up")
	select {}
}

// survive has the last rank die and the others go on without it.
func survive(ctx context.Context, c *pmi.Client, _ []string) error {
	dead := make(chan pmi.Notice, c.Size()) // as many as there are ranks
	if ok, err := c.Notify(func(n pmi.Notice) { dead <- n }); err != nil || !ok || !c.FaultTolerant() {
		return fmt.Errorf("no notices: %t, %v, fault tolerant %t", ok, err, c.FaultTolerant())
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == c.Size()-1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	n := <-dead
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on: %v %d\n", c.Rank(), n.Kind, n.Rank)
	return nil
}

// cat copies standard input to standard output; only rank 0's holds anything.
func cat(ctx context.Context, c *pmi.Client, _ []string) error {
	n, err := io.Copy(os.Stdout, os.Stdin)
	if err == nil && n > 0 && c.Rank() != 0 {
		err = errors.New("input that is rank 0's")
	}
	return errors.Join(err, c.Barrier(ctx))
}

// spam writes lines in pieces.
func spam(_ context.Context, c *pmi.Client, _ []string) error {
	for i := range 2000 {
		fmt.Printf("<%d %d ", c.Rank(), i)
		fmt.Printf("%s>\n", strings.Repeat("ab", i%200))
	}
	return nil
}

// spawn has rank 0 start two more ranks, and all wait for them to be known.
func spawn(ctx context.Context, c *pmi.Client, args []string) error {
	if c.Rank() == 0 {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		info := map[string]string{}
		if len(args) > 0 {
			info["host"] = args[0]
		}
		codes, err := c.Spawn(ctx, pmi.SpawnRequest{
			Apps: []pmi.SpawnApp{{N: 2, Prog: exe, Args: []string{"child", "of mine"}, Info: info}},
			Keys: map[string]string{"parent": card(0)},
		})
		if err != nil {
			return err
		}
		if len(codes) != 2 {
			return fmt.Errorf("spawning two ends with %v", codes)
		}
	}
	return c.Barrier(ctx)
}

// joins has rank 0 spawn jobs that are to tell when they have met this one, and behave in
// the ways named. One that has not when it is no longer waited for is withdrawn.
func joins(ctx context.Context, c *pmi.Client, ways []string) error {
	exe, err := os.Executable()
	if err != nil || c.Rank() > 0 {
		return errors.Join(err, c.Barrier(ctx))
	}
	for _, way := range ways {
		fmt.Println(way+":", joining(ctx, c, exe, way))
	}
	return c.Barrier(ctx)
}

// joining spawns one of them.
func joining(ctx context.Context, c *pmi.Client, exe, way string) error {
	ctx, withdraw := context.WithCancel(ctx)
	defer withdraw()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Spawn(ctx, pmi.SpawnRequest{Apps: []pmi.SpawnApp{{N: 2, Prog: exe, Args: []string{"joined", way}}}, Joins: true})
		ended <- err
	}()
	for way == "never" { // until the children say that they run
		if _, err := c.Lookup("running"); err == nil {
			withdraw()
			break
		} else if !errors.Is(err, pmi.ErrNoName) {
			return err
		}
	}
	return <-ended
}

// joined is what joins spawns.
func joined(ctx context.Context, c *pmi.Client, way []string) error {
	var err error
	switch {
	case way[0] == "forgets":
		return nil
	case c.Rank() > 0:
	case way[0] == "never":
		err = c.Publish("running", "here")
	case way[0] == "refuses":
		err = c.Joined(errors.New("nobody answers"))
	case way[0] == "aborts":
		err = c.Abort(3)
	case way[0] == "dies":
		err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		if err = c.Joined(nil); err == nil {
			os.Exit(5)
		}
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// barren has rank 0 spawn programs that are none of MPI, and none at all.
func barren(ctx context.Context, c *pmi.Client, args []string) error {
	if c.Rank() == 0 {
		for _, prog := range []string{"/bin/true", "/bin/false", "/no/such"} {
			_, err := c.Spawn(ctx, pmi.SpawnRequest{Apps: []pmi.SpawnApp{{N: 1, Prog: prog}, {N: 1, Prog: "/bin/sleep", Args: []string{"1000"}}}})
			fmt.Println(prog+":", err)
		}
	}
	return c.Barrier(ctx)
}
