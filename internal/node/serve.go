package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"golang.org/x/sys/unix"
)

// caller is the local process that asks, as the kernel knows it.
type caller struct {
	uid  uint32
	name string
}

type callerKey struct{}

// maxRequest bounds a request's body, in bytes.
const maxRequest = 64 << 10

// startAPI serves the local socket.
func (d *daemon) startAPI(ctx context.Context) error {
	path := d.id.dir.SocketPath()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("node: %s: %w", path, err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("node: local socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return errors.Join(fmt.Errorf("node: local socket: %w", err), ln.Close())
	}
	srv := &http.Server{
		Handler:           d.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, credentials(c))
		},
	}
	d.group.Go(func() error {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("node: local socket: %w", err)
		}
		return nil
	})
	d.group.Go(func() error { // ends the server with the daemon
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

// credentials asks the kernel who is at the other end (SO_PEERCRED).
func credentials(c net.Conn) caller {
	nobody := caller{uid: ^uint32(0)}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nobody
	}
	rc, err := uc.SyscallConn()
	if err != nil {
		return nobody
	}
	var cred *unix.Ucred
	if cerr := rc.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return nobody
	}
	who := caller{uid: cred.Uid}
	if u, err := user.LookupId(strconv.FormatUint(uint64(cred.Uid), 10)); err == nil {
		who.name = u.Username
	}
	return who
}

// may reports whether the caller may change the network.
func (c caller) may() bool { return c.uid == 0 || int64(c.uid) == int64(os.Getuid()) }

// failure is an error with the status it is to be answered with.
type failure struct {
	status int
	err    error
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

// endpoint answers one request with a value or an error.
type endpoint func(r *http.Request) (any, error)

func (d *daemon) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, e := range map[string]endpoint{
		"GET /v1/status":               d.getStatus,
		"GET /v1/path":                 d.getPath,
		"POST /v1/ping":                d.postPing,
		"GET /v1/env":                  d.getEnv,
		"POST /v1/ticket":              d.postTicket,
		"POST /v1/tokens":              d.admin(d.postToken),
		"GET /v1/tokens":               d.admin(d.getTokens),
		"DELETE /v1/tokens/{id}":       d.admin(d.deleteToken),
		"POST /v1/nodes/{name}/revoke": d.admin(d.postRevoke),
		"DELETE /v1/nodes/{name}":      d.admin(d.deleteNode),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := e(r)
			reply(w, v, err)
		})
	}
	mux.HandleFunc("GET /v1/events", d.streamEvents)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reply(w, nil, failure{http.StatusNotFound, fmt.Errorf("this meshd knows no %s %s; is it older than the command that asked?", r.Method, r.URL.Path)})
	})
	return mux
}

// admin wraps what only a hub does, and only for root or the daemon's own user.
func (d *daemon) admin(e endpoint) endpoint {
	return func(r *http.Request) (any, error) {
		if d.hub == nil {
			return nil, failure{http.StatusConflict, fmt.Errorf("node %s is not a hub; run this on a hub of network %s", d.id.self.Name, d.id.network.Name)}
		}
		if who, _ := r.Context().Value(callerKey{}).(caller); !who.may() {
			return nil, failure{http.StatusForbidden, fmt.Errorf("only root and the user that runs meshd on %s may do this; try sudo", d.id.self.Name)}
		}
		return e(r)
	}
}

func reply(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := http.StatusBadRequest
		var f failure
		if errors.As(err, &f) {
			status = f.status
		}
		w.WriteHeader(status)
		v = api.Failure{Version: api.Version, Error: err.Error()}
	}
	if v == nil {
		v = struct{}{}
	}
	_ = json.NewEncoder(w).Encode(v) // the client has gone if this fails
}

func body[T any](r *http.Request) (v T, err error) {
	dec := json.NewDecoder(io.LimitReader(r.Body, maxRequest))
	if err := dec.Decode(&v); err != nil {
		return v, fmt.Errorf("the request's body: %w", err)
	}
	return v, nil
}

// streamEvents writes events as lines until the client goes.
func (d *daemon) streamEvents(w http.ResponseWriter, r *http.Request) {
	past, next, stop := d.events.listen()
	defer stop()
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	for _, e := range past {
		if enc.Encode(e) != nil {
			return
		}
	}
	for {
		if flush.Flush() != nil {
			return
		}
		select {
		case e := <-next:
			if enc.Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
