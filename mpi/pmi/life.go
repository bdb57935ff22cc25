package pmi

import (
	"context"
	"errors"
	"fmt"
)

// Notify has f called, one call at a time and from a goroutine of the client,
// when a rank dies or comes back, a rank aborts the job, or the launcher is
// lost, and at once for the ranks that are dead by then. (While the launcher ends a job
// that is not fault-tolerant, deaths are not told.) It must not block.
// Where ok is false the launcher tells nothing but that it is lost: it ends the
// job itself.
func (c *Client) Notify(f func(Notice)) (ok bool, err error) {
	if c.w == nil {
		return false, c.alone(func() {})
	}
	c.w.notify(f)
	if !c.mesh {
		return false, nil
	}
	_, err = c.ask(newMessage("mesh_subscribe"), "mesh_subscribed")
	return err == nil, err
}

// Abort asks the launcher to end the job with an exit code, and closes the
// client. The launcher ends this process too; who calls must not wait for that.
func (c *Client) Abort(code int) error {
	if c.w == nil {
		return c.Close()
	}
	err := c.w.say(newMessage("abort", "exitcode", itoa(code)))
	return errors.Join(err, c.Close())
}

// Finalize tells the launcher that the rank leaves on purpose, and closes the
// client. Rank 0 of ranks that meet at it waits here for all others to leave.
func (c *Client) Finalize(ctx context.Context) error {
	if c.w == nil {
		return c.Close()
	}
	_, err := c.w.call(ctx, "finalize_ack", newMessage("finalize"))
	if c.host != nil && err == nil {
		err = c.host.drain(ctx)
	}
	return errors.Join(err, c.Close())
}

// Close cuts the connection: to the launcher, unless Finalize came before, this
// looks as if the rank had died. It may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	done := c.closed
	c.closed = true
	c.mu.Unlock()
	if done {
		return nil
	}
	if c.w != nil {
		c.w.close()
	}
	if c.host != nil {
		c.host.close()
	}
	return nil
}

// alone runs f for a rank without a launcher, under the lock.
func (c *Client) alone(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("pmi: %w", ErrClosed)
	}
	f()
	return nil
}

// exchange sends a command that waits for nobody else and returns the answer.
func (c *Client) exchange(m message, answer string) (message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return c.w.call(ctx, answer, m)
}

// ask is exchange where an answer that says no is an error.
func (c *Client) ask(m message, answer string) (message, error) {
	got, err := c.exchange(m, answer)
	if err != nil {
		return message{}, err
	}
	if why, failed := got.failed(); failed {
		return message{}, fmt.Errorf("pmi: %s: the launcher says: %s", m.cmd, why)
	}
	return got, nil
}
