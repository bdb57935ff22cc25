package pmi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"syscall"
	"time"
)

// meshd is the node's daemon, asked over its local socket. Its side of these
// messages is internal/node/api: Env, JobRequest and JobReply.
type meshd struct {
	state string
	http  *http.Client
}

// Times of asking a meshd. One that restarts is back within grace; a record
// lives three times as long as renewal.
const (
	askTime   = 12 * time.Second // it answers within 9 s
	grace     = 30 * time.Second
	renewal   = 10 * time.Second
	retry     = 200 * time.Millisecond
	reachTime = 10 * time.Second // to connect to rank 0
	farewell  = time.Second
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 16 << 10

func dialMeshd(env environ) *meshd {
	state := env("MESH_STATE")
	if state == "" {
		state = "/var/lib/meshd"
	}
	return &meshd{state, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(state, "meshd.sock"))
		},
	}}}
}

func (d *meshd) close() { d.http.CloseIdleConnections() }

// refusal is a meshd's answer that says no. One of 500 and above may be another
// the next time.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return r.why }

// final reports whether it is of no use to ask again after err.
func final(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status < http.StatusInternalServerError
}

// call asks for path and decodes the answer into out, unless that is nil.
func (d *meshd) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://meshd"+path, body)
	if err != nil {
		return err
	}
	resp, err := d.http.Do(req)
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // without the made-up address
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return parseAnswer(resp.StatusCode, resp.Body, out)
}

// parseAnswer reads what a meshd says.
func parseAnswer(status int, body io.Reader, out any) error {
	dec := json.NewDecoder(io.LimitReader(body, maxAnswer))
	if status/100 != 2 {
		var f struct{ Error string }
		if dec.Decode(&f) != nil || f.Error == "" {
			f.Error = fmt.Sprintf("meshd answers with status %d; is it older than this program?", status)
		}
		return &refusal{status, f.Error}
	}
	if out == nil {
		return nil
	}
	if err := dec.Decode(out); err != nil {
		return fmt.Errorf("meshd's answer: %w", err)
	}
	return nil
}

// place is where a node is in the network.
type place struct {
	Node string
	Site string
	Addr string `json:"addr4"`
}

// where rank 0 serves.
type where struct {
	Addr   string
	Secret string
}

// check reports what is wrong with an answer that names a rank 0.
func (w where) check() error {
	if _, err := netip.ParseAddrPort(w.Addr); err != nil || w.Secret == "" {
		return fmt.Errorf("meshd says that rank 0 is at %.60q", w.Addr)
	}
	return nil
}

// request tells where rank 0 serves: a port of the node's virtual address.
type request struct {
	Owners []string `json:"owners"`
	Port   uint16   `json:"port"`
	Secret string   `json:"secret,omitempty"`
}

// meetAtMeshd has rank 0 serve at its node's virtual address, and the others find
// it through this host's meshd and that of the job's owner.
func (c *Client) meetAtMeshd(ctx context.Context, m meeting, env environ) error {
	d := dialMeshd(env)
	err := d.call(ctx, http.MethodGet, "/v1/env", nil, &c.place)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("pmi: %s tells ranks on several hosts no way to meet, and no meshd runs here (state directory %s); %s", m.launcher, d.state, m.instead)
	case err != nil:
		return fmt.Errorf("pmi: ask meshd where ranks meet: %w", err)
	case m.rank == 0:
		return c.hostAfar(ctx, m, d, env(EnvFT) != "")
	}
	defer d.close()
	return c.joinAfar(ctx, m, d)
}

// hostAfar serves the job and joins it as rank 0. It owns d.
func (c *Client) hostAfar(ctx context.Context, m meeting, d *meshd, ft bool) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(c.place.Addr, "0"))
	if err != nil {
		d.close()
		return fmt.Errorf("pmi: listen at this node's virtual address: %w", err)
	}
	ask := request{m.owners, netip.MustParseAddrPort(ln.Addr().String()).Port(), rand.Text()}
	path := jobsPath + m.key()
	if err := again(ctx, grace, func() error { return d.call(ctx, http.MethodPut, path, ask, nil) }); err != nil {
		ln.Close()
		d.close()
		return m.nowhere(err)
	}
	return c.hostJob(ctx, m, ln, ask.Secret, ft, func(life context.Context, srv *Server) {
		defer d.close()
		announce(life, srv, d, path, ask)
	})
}

// jobsPath, and the job's key, is where meshd takes questions about jobs.
const jobsPath = "/v1/jobs/"

// announce renews rank 0's record until all ranks have come, or the server ends,
// and takes it back then. A meshd that has restarted learns of it so; failures
// are the next renewal's.
func announce(life context.Context, srv *Server, d *meshd, path string, ask request) {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case <-tick.C:
			_ = d.call(life, http.MethodPut, path, ask, nil)
		case <-srv.Met():
			waits = false
		case <-life.Done():
			waits = false
		}
	}
	ask.Secret = ""
	ctx, cancel := context.WithTimeout(context.WithoutCancel(life), farewell)
	defer cancel()
	_ = d.call(ctx, http.MethodDelete, path, ask, nil) // else it expires
}

// joinAfar finds rank 0 and joins its job.
func (c *Client) joinAfar(ctx context.Context, m meeting, d *meshd) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for until := time.Now().Add(leaveTime); ; {
		w, err := m.find(ctx, d)
		if err != nil {
			return m.nowhere(err)
		}
		conn, err := (&net.Dialer{Timeout: reachTime}).DialContext(ctx, "tcp", w.Addr)
		if err == nil {
			err = c.introduce(ctx, conn, m.rank, w.Secret)
			if !errors.Is(err, errRefused) || time.Now().After(until) {
				return err
			}
		}
		if pause(ctx, retry) != nil { // the record may be of a rank 0 that is dead, or about to leave
			return fmt.Errorf("pmi: rank 0 does not answer at %s: %w", w.Addr, err)
		}
	}
}

// find asks until rank 0 has come: a meshd waits a while for it before it says that it
// has not, but one that does not wait is not asked without end.
func (m meeting) find(ctx context.Context, d *meshd) (w where, err error) {
	path := jobsPath + m.key() + "?" + url.Values{"owner": m.owners}.Encode()
	for w.Addr == "" {
		err := again(ctx, grace, func() error { return d.call(ctx, http.MethodGet, path, nil, &w) })
		if ctx.Err() != nil {
			return w, fmt.Errorf("rank 0 has not come (%w); has it called Init?", context.Cause(ctx))
		}
		if err != nil {
			return w, err
		}
		if w.Addr == "" {
			_ = pause(ctx, retry) // else the next question fails
		}
	}
	return w, w.check()
}

// nowhere says why ranks do not meet and, where a meshd refuses, what else to do.
func (m meeting) nowhere(err error) error {
	if final(err) {
		return fmt.Errorf("pmi: meet the other ranks: %w; %s", err, m.instead)
	}
	return fmt.Errorf("pmi: meet the other ranks: %w", err)
}

// again calls f until it succeeds, fails for good, or has failed for so long.
func again(ctx context.Context, long time.Duration, f func() error) error {
	began := time.Now()
	for {
		err := f()
		if err == nil || final(err) || time.Since(began) > long || pause(ctx, retry) != nil {
			return err
		}
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
