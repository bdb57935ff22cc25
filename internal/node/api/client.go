package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// DefaultState is the state directory when nobody names another.
const DefaultState = "/var/lib/meshd"

const (
	maxReply  = 64 << 20         // bytes: the status of ten thousand nodes
	replyTime = 30 * time.Second // to answer anything but a stream
)

// StateDir returns the state directory, absolute: the flag's, $MESH_STATE's, the default.
func StateDir(flag string) string {
	dir := DefaultState
	if flag != "" {
		dir = flag
	} else if env := os.Getenv("MESH_STATE"); env != "" {
		dir = env
	}
	if abs, err := filepath.Abs(dir); err == nil { // it goes to processes that start elsewhere
		return abs
	}
	return dir
}

// Client speaks to the meshd of one state directory.
type Client struct {
	state string
	http  *http.Client
}

// Dial returns a client for the state directory. It connects when first used.
func Dial(state string) *Client {
	socket := filepath.Join(state, "meshd.sock")
	return &Client{state: state, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Status returns the node's view of the network.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Paths returns the path to one node, or with "" to all that were talked to.
func (c *Client) Paths(ctx context.Context, node string) (r PathReply, err error) {
	return r, c.call(ctx, http.MethodGet, "/v1/path?node="+url.QueryEscape(node), nil, &r)
}

// Ping measures one round trip to a node.
func (c *Client) Ping(ctx context.Context, node string) (r PingReply, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/ping?node="+url.QueryEscape(node), nil, &r)
}

// Env returns what MPI launchers must be told.
func (c *Client) Env(ctx context.Context) (e Env, err error) {
	return e, c.call(ctx, http.MethodGet, "/v1/env", nil, &e)
}

// Ticket asks for leave to run a command on a node; key is an SSH public key in
// authorized_keys form.
func (c *Client) Ticket(ctx context.Context, host, login, key string) (t exec.Ticket, err error) {
	return t, c.call(ctx, http.MethodPost, "/v1/ticket", TicketRequest{Host: host, Login: login, Key: key}, &t)
}

// CreateToken makes a token. Hubs only.
func (c *Client) CreateToken(ctx context.Context, req TokenRequest) (r TokenReply, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/tokens", req, &r)
}

// Tokens lists the tokens. Hubs only.
func (c *Client) Tokens(ctx context.Context) (r TokensReply, err error) {
	return r, c.call(ctx, http.MethodGet, "/v1/tokens", nil, &r)
}

// RevokeToken makes a token worthless. Hubs only.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.about(ctx, http.MethodDelete, "/v1/tokens/", id, "", "token's ID; see meshctl token list")
}

// RevokeNode cuts a node off for good. Hubs only.
func (c *Client) RevokeNode(ctx context.Context, name string) error {
	return c.about(ctx, http.MethodPost, "/v1/nodes/", name, "/revoke", "node's name; see meshctl status")
}

// RemoveNode forgets a node that has left; its name becomes free. Hubs only.
func (c *Client) RemoveNode(ctx context.Context, name string) error {
	return c.about(ctx, http.MethodDelete, "/v1/nodes/", name, "", "node's name; see meshctl status")
}

// about is a call about a thing that stands in the path, where some names would lead
// elsewhere: these are no what.
func (c *Client) about(ctx context.Context, method, before, name, after, what string) error {
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%q is no %s", name, what)
	}
	return c.call(ctx, method, before+url.PathEscape(name)+after, nil, nil)
}

// Sites returns the sites and what is declared of their links.
func (c *Client) Sites(ctx context.Context) (r SitesReply, err error) {
	return r, c.call(ctx, http.MethodGet, "/v1/sites", nil, &r)
}

// SetSite declares what a site's link carries, and whether its nodes use their LAN. Hubs only.
func (c *Client) SetSite(ctx context.Context, req SiteRequest) (r SitesReply, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/sites", req, &r)
}

// SetLink declares what the way between two sites carries. Hubs only.
func (c *Client) SetLink(ctx context.Context, req LinkRequest) (r SitesReply, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/links", req, &r)
}

// Events calls f for the last events that meshd remembers, then for every one from now
// on, until ctx ends or f fails.
func (c *Client) Events(ctx context.Context, f func(Event) error) error {
	resp, err := c.do(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var e Event
		if err := dec.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("meshd in %s has stopped", c.state)
		}
		if err := f(e); err != nil {
			return err
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, replyTime, errHangs)
	defer cancel()
	resp, err := c.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(out); err != nil {
		return c.explain(ctx, fmt.Errorf("answer to %s: %w", path, err))
	}
	return nil
}

// errHangs is why a call ends that meshd does not answer.
var errHangs = errors.New("no answer")

// do sends a request and returns a response of class 2xx.
func (c *Client) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://meshd"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var f Failure
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&f); err != nil || f.Error == "" {
		return nil, fmt.Errorf("meshd answered %s to %s", resp.Status, path)
	}
	return nil, errors.New(f.Error)
}

// explain turns a failure to connect, or to be answered, into a line that says
// what to do.
func (c *Client) explain(ctx context.Context, err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // without the made-up address
	}
	switch {
	case errors.Is(context.Cause(ctx), errHangs):
		return fmt.Errorf("meshd in %s takes connections but has not answered for %v; see its log, or restart it", c.state, replyTime)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no meshd runs with state directory %s on this machine; start it with meshd run --state %s, or name another with --state or $MESH_STATE", c.state, c.state)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to reach meshd in %s; its directory should have mode 0711", c.state)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("meshd in %s closed the connection: it is stopping, or you have too many open; try again", c.state)
	}
	return fmt.Errorf("meshd in %s: %w", c.state, err)
}
