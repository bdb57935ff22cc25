//go:build !linux

package engine

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// Elsewhere than on Linux, connections are read and written by goroutines, and
// memory is not shared between processes.

type system struct{}

type localOffer struct{}

func (*localOffer) drop() {}

func (e *Engine) equipSystem() error {
	e.asleep = new(atomic.Uint32)
	e.bell = newChanBell()
	e.spins, e.yields = 0, 4
	return nil
}

// Crowd changes nothing here.
func (e *Engine) Crowd(bool, int) {}

func (e *Engine) listenLocal() {}

func (e *Engine) dialLocal(context.Context, *peer, *card) error { return errors.ErrUnsupported }

func (e *Engine) hearLocal(net.Conn) (*hello, *localOffer, error) {
	return nil, nil, errors.ErrUnsupported
}

func (e *Engine) admitLocal(*hello, net.Conn, *localOffer) {}

func isLocal(net.Conn) bool { return false }

func (e *Engine) wireOf(nc net.Conn) (wire, error) {
	_ = nc.SetDeadline(time.Time{})
	return newNetWire(e, nc), nil
}

func roundTrip(net.Conn) time.Duration { return 0 }

// ahead is what other systems have.
type ahead struct{}

func (e *Engine) openAhead([]net.Conn) *ahead { return nil }

func (a *ahead) offer(*hello)       {}
func (a *ahead) meet(*hello) *ahead { return nil }
func (a *ahead) give([]wire)        {}
func (a *ahead) close()             {}

func (e *Engine) writeAhead() {}
