package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/internal/node/metrics"
)

// Bounds of a request. A ping asked for takes pingLimit at most.
const (
	maxRequest = 64 << 10 // bytes of a body, and of what comes before it
	readTime   = 10 * time.Second
	writeTime  = 20 * time.Second // from the request's end: to answer, and for the client to read
	idleTime   = 30 * time.Second
	stopTime   = time.Second // for answers under way when the daemon ends
)

// startAPI serves the local socket.
func (d *daemon) startAPI(ctx context.Context) error {
	door, err := openDoor(d.id.dir.SocketPath())
	if err != nil {
		return err
	}
	d.door = door
	srv := d.server(ctx)
	d.group.Go(func() error {
		if err := srv.Serve(door); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("node: local socket: %w", err)
		}
		return nil
	})
	d.group.Go(func() error { // ends the server with the daemon
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			return srv.Close()
		}
		return nil
	})
	return nil
}

// server answers requests; ctx ends those that take their time.
func (d *daemon) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           d.routes(),
		MaxHeaderBytes:    maxRequest,
		ReadHeaderTimeout: readTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, callerOf(c))
		},
	}
}

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
		"GET /v1/sites":                d.getSites,
		"GET /v1/shape":                d.getShape,
		"POST /v1/shape":               d.postShape,
		"POST /v1/ticket":              d.postTicket,
		"PUT /v1/jobs/{key}":           d.jobs.fromRank,
		"GET /v1/jobs/{key}":           d.jobs.fromRank,
		"DELETE /v1/jobs/{key}":        d.jobs.fromRank,
		"POST /v1/tokens":              d.admin(d.postToken),
		"GET /v1/tokens":               d.admin(d.getTokens),
		"DELETE /v1/tokens/{id}":       d.admin(d.deleteToken),
		"POST /v1/nodes/{name}/revoke": d.admin(d.postRevoke),
		"DELETE /v1/nodes/{name}":      d.admin(d.deleteNode),
		"POST /v1/sites":               d.admin(d.postSite),
		"POST /v1/links":               d.admin(d.postLink),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := e(r)
			reply(w, v, err)
		})
	}
	mux.HandleFunc("GET /v1/events", d.streamEvents)
	mux.Handle("GET /metrics", metrics.Handler(d.snapshot, d.log))
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
		if !callerIn(r).may() {
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

// streamEvents writes events as lines until the client goes, or does not read
// for writeTime.
func (d *daemon) streamEvents(w http.ResponseWriter, r *http.Request) {
	l := d.events.listen()
	defer l.stop()
	enc, conn := json.NewEncoder(w), http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{}) // the stream outlives what is due of a request
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
		for _, e := range l.take() {
			if enc.Encode(e) != nil {
				return
			}
		}
		if conn.Flush() != nil {
			return
		}
		select {
		case <-l.wake:
		case <-r.Context().Done():
			return
		}
	}
}
