package mpi

// The collective operations of MPI 4.1 chapter 6. Each has three forms: Bcast
// blocks, Ibcast begins it and returns a Request, BcastInit sets it up to be
// begun many times. All ranks call the same one with the same root, operation
// and sizes. A nil send buffer means that the input is in the receive buffer
// already, at this rank's place (MPI_IN_PLACE).
//
// Sizes follow from the slices: Gather's receive buffer holds Size() times as
// much as the send buffer, and so on; where they do not fit each other the call
// fails with ErrCount. It counts as this rank's part in the operation all the same,
// which fails with ErrOther at those that wait for it.

// prepared makes a run of one collective operation, or says what is wrong with
// its arguments.
type prepared func(op string) (*run, error)

// do runs an operation to its end.
func (c *Comm) do(op string, prepare prepared) error {
	if err := c.usable(op); err != nil {
		return err
	}
	all := c.everybody(c.nextTag())
	r, err := prepare(op)
	if err == nil {
		r.of(all)
	}
	bad := c.byBoard(r) // opens it with the others, also if this operation fails
	switch {
	case err != nil && mayShow(op):
		c.refuse(all, strayed)
		return err
	case err != nil:
		c.refuse(all, nobodyDied)
		return err
	case bad != nil:
		return c.wrap(op, -1, bad)
	}
	if c.ctx != nil {
		q, err := c.launch(op, r)
		if err != nil {
			return err
		}
		_, err = q.wait(op, c.ctx)
		return err
	}
	if err := r.wait(); err != nil {
		return c.wrap(op, -1, err)
	}
	c.idle.Store(r.cleared())
	return nil
}

// start begins an operation.
func (c *Comm) start(op string, prepare prepared) (Request, error) {
	if err := c.usable(op); err != nil {
		return Request{}, err
	}
	r, err := c.turn(c.nextTag(), op, prepare)
	if err != nil {
		return Request{}, err
	}
	return c.launch(op, r)
}

// launch begins a run that the caller will not wait for here.
func (c *Comm) launch(op string, r *run) (Request, error) {
	c.running.Add(1)
	r.running = &c.running
	if err := r.begin(); err != nil {
		c.running.Add(-1)
		return Request{}, c.wrap(op, -1, err)
	}
	return c.request(op, -1, r.id, nil)
}

// set sets an operation up. Its arguments are looked at now and once more at
// each start. Its turn among the communicator's operations is taken now, so that
// ranks may start several in different orders (MPI 4.1 §6.13). Each start has a tag of
// its own: what one that failed has left behind is none of the next one's business.
func (c *Comm) set(op string, prepare prepared) (*Persistent, error) {
	if err := c.usable(op); err != nil {
		return nil, err
	}
	nth, starts := c.lasting.Add(1), uint32(0)
	if _, err := prepare(op); err != nil {
		return nil, err
	}
	return &Persistent{begin: func() (Request, error) {
		if err := c.usable(op); err != nil {
			return Request{}, err
		}
		starts++
		r, err := c.turn(startTag(nth, starts), op, prepare)
		if err != nil {
			return Request{}, err
		}
		return c.launch(op, r)
	}}, nil
}

// turn makes the run of the operation with a tag. If its arguments are of no use here the
// others, for whom they may be good, are told, and the next operation is everybody's next.
func (c *Comm) turn(tag int32, op string, prepare prepared) (*run, error) {
	all := c.everybody(tag)
	r, err := prepare(op)
	if err != nil {
		c.refuse(all, nobodyDied)
		return nil, err
	}
	r.of(all)
	return r, nil
}

// startTag is the tag of a start of the n-th persistent operation of a communicator.
// Tags come again after so many operations, or starts of one, that nothing is left of
// the first.
func startTag(nth, start uint32) int32 {
	return persistentTag | int32((nth<<startBits|start&(1<<startBits-1))&(persistentTag-1))
}

const (
	startBits = 12
	startHalf = 1 << (startBits - 1) // between starts as far apart as can be
)

// persistentTag sets the tags of persistent operations apart from those of others.
const persistentTag = 1 << 30
