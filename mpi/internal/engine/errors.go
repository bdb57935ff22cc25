package engine

import (
	"errors"
	"fmt"
)

// Errors that a caller branches on.
var (
	ErrClosed    = errors.New("engine: closed")
	ErrRequest   = errors.New("engine: no such request; it was completed or freed")
	ErrMessage   = errors.New("engine: no such message; it was received")
	ErrBusy      = errors.New("engine: another goroutine waits for this request")
	ErrTag       = errors.New("engine: tag out of range")
	ErrContext   = errors.New("engine: context is not open")
	ErrRevoked   = errors.New("engine: context revoked") // what Revoke uses when it is given no error
	ErrRefused   = errors.New("engine: the other side has dropped the message")
	ErrTooLarge  = errors.New("engine: too large to post")
	ErrHandler   = errors.New("engine: no handler, or handler panicked")
	ErrLimit     = errors.New("engine: too many requests")
	ErrCard      = errors.New("engine: malformed card")
	errViolation = errors.New("engine: peer violated the protocol")

	errRevokedThere = fmt.Errorf("%w: %w", ErrRefused, ErrRevoked) // the other side knows of it before us
)

// ErrRankRange is returned for a process that is not in the table.
type ErrRankRange struct{ Proc Proc }

func (e ErrRankRange) Error() string { return fmt.Sprintf("engine: no process %d", e.Proc) }

// ErrTruncate is how a receive ends whose message did not fit. The first Buffer
// bytes were received, the rest is lost.
type ErrTruncate struct{ Message, Buffer int64 }

func (e ErrTruncate) Error() string {
	return fmt.Sprintf("engine: message of %d bytes truncated to %d", e.Message, e.Buffer)
}

// ErrStray is how a turn on a board ends in which another member sends messages, and a
// receive of what another shows on a board.
type ErrStray struct{ ErrTruncate }

func (e ErrStray) Error() string {
	return fmt.Sprintf("engine: another member does something else in this turn, of %d bytes", e.Message)
}

// Unwrap returns what was not expected.
func (e ErrStray) Unwrap() error { return e.ErrTruncate }

// ErrProcFailed is how an operation ends that needs a process which has died or
// left. Err says how that was noticed.
type ErrProcFailed struct {
	Proc Proc
	Err  error
}

func (e ErrProcFailed) Error() string {
	return fmt.Sprintf("engine: process %d failed: %v", e.Proc, e.Err)
}

// Unwrap returns how the failure was noticed.
func (e ErrProcFailed) Unwrap() error { return e.Err }

// ErrProcFailedPending is returned by Wait and Test for a receive from AnyProc
// when a process that could have sent has died: the request stays valid and may
// still match; Acknowledge stops the error (ULFM).
type ErrProcFailedPending struct{ Proc Proc }

func (e ErrProcFailedPending) Error() string {
	return fmt.Sprintf("engine: process %d failed; the receive stays pending", e.Proc)
}

// ErrPanic is how a request ends whose Done function panicked.
type ErrPanic struct{ Value any }

func (e ErrPanic) Error() string { return fmt.Sprintf("engine: callback panicked: %v", e.Value) }
