// Command meshctl shows what the meshd on this machine knows, and on a hub
// administers the network.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/meshmpi/meshmpi/internal/cli"
	"github.com/meshmpi/meshmpi/internal/node/api"
)

type commands struct {
	State string `help:"State directory (default: $$MESH_STATE, else ${state})." placeholder:"DIR"`
	JSON  bool   `help:"Print JSON."`

	Status statusCmd `cmd:"" help:"Show the node, the network and the paths."`
	Ping   pingCmd   `cmd:"" help:"Measure the round trip to a node, over the path that packets take."`
	Path   pathCmd   `cmd:"" help:"Show how packets reach a node, or every node talked to."`
	Env    envCmd    `cmd:"" help:"Print the environment for your own mpirun: eval \"$$(meshctl env)\"."`
	Events eventsCmd `cmd:"" help:"Print what has happened lately, and what happens, as it happens."`
	Token  tokenCmd  `cmd:"" help:"Make, list and revoke tokens (on a hub)."`
	Node   nodeCmd   `cmd:"" help:"Revoke and remove nodes (on a hub)."`
	Site   siteCmd   `cmd:"" help:"List sites; declare what their links carry (on a hub)."`
	Shape  shapeCmd  `cmd:"" help:"Show, or set, how fast this node sends to other sites."`
}

// deps is what commands work with.
type deps struct {
	ctx    context.Context
	client *api.Client
	state  string
	json   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	d := &deps{ctx: ctx}
	cli.Run("meshctl", "Shows and administers a meshmpi network.", &c, kong.Vars{"state": api.DefaultState}, d)
}

// AfterApply connects once the flags are known.
func (c *commands) AfterApply(d *deps) error {
	d.state, d.json = api.StateDir(c.State), c.JSON
	d.client = api.Dial(d.state)
	return nil
}

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token and print it alone."`
	List   tokenListCmd   `cmd:"" help:"List tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"Make a token worthless."`
}

type tokenCreateCmd struct {
	Site string        `help:"Site of the nodes that join with it (default: the hub's)."`
	Uses int           `default:"1" help:"How many nodes may join with it."`
	TTL  time.Duration `name:"ttl" default:"24h" help:"How long it is good."`
}

func (c *tokenCreateCmd) Run(d *deps) error {
	if c.Uses < 1 {
		return cli.Usage(fmt.Errorf("--uses %d: a token is for at least 1 node", c.Uses))
	}
	if c.TTL <= 0 {
		return cli.Usage(fmt.Errorf("--ttl %v: a token needs some time to be used, such as 24h", c.TTL))
	}
	r, err := d.client.CreateToken(d.ctx, api.TokenRequest{Site: c.Site, Uses: c.Uses, TTL: c.TTL})
	if err != nil {
		return err
	}
	return d.show(r, func(p *printer) { p.line("%s", r.Token) })
}

type tokenListCmd struct{}

func (c *tokenListCmd) Run(d *deps) error {
	r, err := d.client.Tokens(d.ctx)
	if err != nil {
		return err
	}
	return d.show(r, func(p *printer) {
		p.row("ID", "SITE", "USES LEFT", "EXPIRES", "STATE")
		for _, t := range r.Tokens {
			p.row(t.ID, t.Site, t.Uses, when(t.Expires), t.State)
		}
	})
}

type tokenRevokeCmd struct {
	ID string `arg:"" help:"The token's ID, from meshctl token list."`
}

func (c *tokenRevokeCmd) Run(d *deps) error {
	return d.done(d.client.RevokeToken(d.ctx, c.ID))
}

type nodeCmd struct {
	Revoke nodeRevokeCmd `cmd:"" help:"Cut a node off for good: its keys are no longer trusted."`
	Remove nodeRemoveCmd `cmd:"" help:"Forget a node that has left; its name becomes free."`
}

type nodeRevokeCmd struct {
	Name string `arg:""`
}

func (c *nodeRevokeCmd) Run(d *deps) error {
	return d.done(d.client.RevokeNode(d.ctx, c.Name))
}

type nodeRemoveCmd struct {
	Name string `arg:""`
}

func (c *nodeRemoveCmd) Run(d *deps) error {
	return d.done(d.client.RemoveNode(d.ctx, c.Name))
}
