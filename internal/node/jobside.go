package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/node/jobs"
	"github.com/meshmpi/meshmpi/mesh/cert"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/mpishim/exec"
	"golang.org/x/sync/singleflight"
)

// The ranks of a job that its launcher tells nothing but numbers find rank 0 by
// a record at the job's owner (package jobs). They ask their own meshd, which
// knows them by the socket and passes the question on:
//
//	rank → local socket → this node → TLS with both certificates → the owner
//
// The owner believes a node about who its users are, as the exec service does,
// and by the same policy: who may run commands here may meet here. The address
// in a record is the virtual one of the node that put it, so that nobody can
// send ranks elsewhere.

// Bounds of questions about jobs. The first two together are less than readTime,
// after which the library takes who asks to have gone.
const (
	jobWait    = 5 * time.Second // for a record to come
	jobReach   = 4 * time.Second // to connect to the owner
	maxOwners  = 8
	maxAsk     = 4 << 10 // bytes of a body or of an answer
	maxFromOne = 8       // connections of one node; HTTP/2 puts 250 questions on each
	maxUsers   = 16      // of one node that are looked up at a time: each starts processes
)

// userHeader is how a node says, to the owner, whose question it passes on.
const userHeader = "Mesh-User"

// jobSide is a node's part in the meeting of ranks.
type jobSide struct {
	d        *daemon
	book     jobs.Book
	http     *http.Client       // to other nodes
	admit    singleflight.Group // of local accounts: the name service is slow
	accounts shares[peer.ID]    // that are being looked up, by the node that asks
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

func newJobSide(d *daemon) *jobSide {
	j := &jobSide{d: d, dial: (&net.Dialer{Timeout: jobReach}).DialContext}
	j.http = &http.Client{
		Transport: &http.Transport{
			DialTLSContext: j.connect, Protocols: onlyHTTP2(), IdleConnTimeout: idleTime,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errPlain },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // an owner sends us nowhere
	}
	return j
}

var (
	errPlain = errors.New("nodes are asked over TLS alone")
	errUsers = errors.New("too many users at a time")
)

func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	return p
}

func (j *jobSide) tls() *tls.Config {
	return cert.RenewingTLSConfig(j.d.id.keys, j.d.id.Chain, j.d.id.network.Root, time.Now, "h2")
}

// startJobs takes other nodes' questions on the virtual address.
func (d *daemon) startJobs(ctx context.Context) error {
	ln, err := listenVirtual(d.id.self.Addr4, jobs.Port, "meeting point of ranks")
	if err != nil {
		return err
	}
	srv := d.jobs.server(ctx)
	d.onClose("questions about jobs", closeFunc(func() error { d.jobs.http.CloseIdleConnections(); return nil }))
	d.group.Go(func() error {
		if err := srv.ServeTLS(&fairListener{Listener: ln}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("node: meeting point of ranks: %w", err)
		}
		return nil
	})
	d.group.Go(func() error { // ends the server with the daemon
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

// server answers other nodes; ctx ends those that wait.
func (j *jobSide) server(ctx context.Context) *http.Server {
	mux := http.NewServeMux()
	for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
		mux.HandleFunc(method+" /v1/jobs/{key}", func(w http.ResponseWriter, r *http.Request) {
			v, err := j.fromNode(r)
			reply(w, v, err)
		})
	}
	return &http.Server{
		Handler: mux, TLSConfig: j.tls(), Protocols: onlyHTTP2(), MaxHeaderBytes: maxAsk,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: 2 * idleTime,
		ErrorLog:    slog.NewLogLogger(j.d.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// fairListener gives each address its share of connections.
type fairListener struct {
	net.Listener
	nodes shares[netip.Addr]
}

// Accept implements net.Listener.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if a := from.Addr(); l.nodes.enter(a, maxFromOne) {
			return &counted{Conn: c, leave: func() { l.nodes.leave(a) }}, nil
		}
		c.Close()
	}
}

// ask is a question about a job. Only PUT has a secret, and GET has no port.
type ask struct {
	method string
	key    string
	req    api.JobRequest
}

// readAsk reads a question from a rank or, without owners, from a node.
func readAsk(r *http.Request) (a ask, err error) {
	a.method, a.key = r.Method, r.PathValue("key")
	if r.Method == http.MethodGet {
		a.req.Owners = r.URL.Query()["owner"]
	} else if err := json.NewDecoder(io.LimitReader(r.Body, maxAsk)).Decode(&a.req); err != nil {
		return a, fmt.Errorf("the request's body: %w", err)
	}
	if len(a.req.Owners) > maxOwners {
		return a, fmt.Errorf("a job has at most %d owners to choose from", maxOwners)
	}
	return a, jobs.ID{Key: a.key}.Check()
}

// fromRank answers a rank on this host, who is known by the local socket.
func (j *jobSide) fromRank(r *http.Request) (any, error) {
	if j.d.cfg.Userspace {
		return nil, failure{http.StatusConflict, fmt.Errorf("node %s lives inside one program, so no other can be reached at its address; ranks need a meshd of their own", j.d.id.self.Name)}
	}
	a, err := readAsk(r)
	if err != nil {
		return nil, err
	}
	who := callerIn(r)
	rec, err := j.owner(a.req.Owners)
	if err != nil {
		return nil, err
	}
	if rec.Node.ID == j.d.id.self.ID {
		return j.answer(r.Context(), who.uid, j.d.id.self, a)
	}
	user, err := j.d.door.nameOf(r.Context(), who)
	if err != nil {
		return nil, failure{http.StatusForbidden, err}
	}
	a.req.Owners = nil
	return j.pass(r.Context(), rec.Node, user, a)
}

// owner returns the first node that the names name. All ranks of a job give the
// same, and no other node would do as well: a hub, say, need not know the user.
func (j *jobSide) owner(names []string) (peer.Record, error) {
	for _, name := range names {
		if rec, err := j.d.find(name); err == nil {
			return rec, nil
		}
	}
	launcher, network := strings.Join(names, " "), j.d.id.network.Name
	if j.d.uninformed() { // a node that has just joined, say: the rank asks again
		return peer.Record{}, failure{http.StatusServiceUnavailable, fmt.Errorf("the job's launcher runs on %.200q, of which node %s has not heard, and no hub of network %s has told it of all nodes yet; see the hubs in meshctl status", launcher, j.d.id.self.Name, network)}
	}
	return peer.Record{}, fmt.Errorf("the job's launcher runs on %.200q, which is no node of network %s, so the ranks have nowhere to meet", launcher, network)
}

// fromNode answers a rank on another node, who is known by that node's word.
func (j *jobSide) fromNode(r *http.Request) (any, error) {
	n, err := j.peer(r.TLS)
	if err != nil {
		return nil, failure{http.StatusForbidden, err}
	}
	a, err := readAsk(r)
	if err != nil {
		return nil, err
	}
	who := exec.Caller{Node: n.Name, Site: n.Site, User: r.Header.Get(userHeader)}
	uid, err, _ := j.admit.Do(who.String(), func() (any, error) {
		if !j.accounts.enter(n.ID, maxUsers) {
			return nil, errUsers
		}
		defer j.accounts.leave(n.ID)
		p, err := j.d.policy()
		if err != nil {
			return nil, err
		}
		return exec.Admit(context.WithoutCancel(r.Context()), p, who)
	})
	if errors.Is(err, errUsers) {
		return nil, failure{http.StatusServiceUnavailable, fmt.Errorf("ranks meet at node %s, which looks up %d users of node %s at a time and no more; try again", j.d.id.self.Name, maxUsers, n.Name)}
	}
	if err != nil {
		return nil, failure{http.StatusForbidden, fmt.Errorf("ranks meet at node %s, which does not let %s in: %s", j.d.id.self.Name, who, strings.TrimPrefix(err.Error(), "exec: "))}
	}
	return j.answer(r.Context(), uid.(uint32), n, a)
}

// peer returns the node at the other end, if it is in good standing now.
func (j *jobSide) peer(cs *tls.ConnectionState) (peer.Node, error) {
	if cs == nil {
		return peer.Node{}, errors.New("no node's certificate")
	}
	n, _, err := cert.NodeOf(*cs, j.d.id.network.Root, time.Now())
	if err != nil {
		return peer.Node{}, err
	}
	if n.ID != j.d.id.self.ID && !j.d.dir.Owns(n) {
		return peer.Node{}, fmt.Errorf("node %s is not, or no longer, known to node %s", n.Name, j.d.id.self.Name)
	}
	return n, nil
}

// answer does what is asked of the owner: us.
func (j *jobSide) answer(ctx context.Context, uid uint32, from peer.Node, a ask) (any, error) {
	id, addr := jobs.ID{UID: uid, Key: a.key}, netip.AddrPortFrom(from.Addr4, a.req.Port)
	switch a.method {
	case http.MethodPut:
		err := j.book.Put(time.Now(), id, jobs.Record{Addr: addr, Secret: a.req.Secret})
		if errors.Is(err, jobs.ErrFull) {
			err = failure{http.StatusTooManyRequests, err}
		}
		return nil, err
	case http.MethodDelete:
		j.book.Remove(id, addr)
		return nil, nil
	}
	late := time.NewTimer(jobWait)
	defer late.Stop()
	for {
		r, ok, later := j.book.Get(time.Now(), id)
		if ok {
			return api.JobReply{Version: api.Version, Addr: r.Addr.String(), Secret: r.Secret}, nil
		}
		select {
		case <-later:
		case <-late.C:
			return api.JobReply{Version: api.Version}, nil
		case <-ctx.Done():
			return nil, failure{http.StatusServiceUnavailable, context.Cause(ctx)}
		}
	}
}

// pass hands a question on to its owner and returns the answer.
func (j *jobSide) pass(ctx context.Context, owner peer.Node, user string, a ask) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, jobWait+jobReach)
	defer cancel()
	var body io.Reader
	if a.method != http.MethodGet {
		b, err := json.Marshal(a.req)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, a.method, "https://"+owner.Name+"/v1/jobs/"+url.PathEscape(a.key), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(userHeader, user)
	resp, err := j.http.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the made-up address
		}
		return nil, failure{http.StatusBadGateway, fmt.Errorf("ranks meet at node %s, which does not answer: %w (try: meshctl ping %s)", owner.Name, err, owner.Name)}
	}
	defer resp.Body.Close()
	return parseAnswer(resp.StatusCode, resp.Body)
}

// parseAnswer reads what an owner says.
func parseAnswer(status int, body io.Reader) (any, error) {
	var v struct {
		api.JobReply
		Error string `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(body, maxAsk)).Decode(&v)
	switch {
	case err != nil:
		return nil, failure{http.StatusBadGateway, fmt.Errorf("the node where ranks meet answers with status %d and no sense: %w", status, err)}
	case status >= http.StatusBadRequest && status < 600 && v.Error != "":
		return nil, failure{status, errors.New(v.Error)}
	case status != http.StatusOK:
		return nil, failure{http.StatusBadGateway, fmt.Errorf("the node where ranks meet answers with status %d", status)}
	}
	if v.Addr != "" {
		if _, err := netip.ParseAddrPort(v.Addr); err != nil || len(v.Secret) > jobs.MaxSecret {
			return nil, failure{http.StatusBadGateway, fmt.Errorf("the node where ranks meet says that rank 0 is at %.60q", v.Addr)}
		}
	}
	return api.JobReply{Version: api.Version, Addr: v.Addr, Secret: v.Secret}, nil
}

// connect makes sure that it is the owner who answers. addr is its name.
func (j *jobSide) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	rec, err := j.d.find(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, jobReach)
	defer cancel()
	raw, err := j.dial(ctx, network, net.JoinHostPort(rec.Node.Addr4.String(), strconv.Itoa(jobs.Port)))
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, j.tls())
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	if n, _, err := cert.NodeOf(conn.ConnectionState(), j.d.id.network.Root, time.Now()); err != nil || n.ID != rec.Node.ID {
		raw.Close()
		return nil, fmt.Errorf("another node than %s answers at its address", rec.Node.Name)
	}
	return conn, nil
}
