package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/meshmpi/meshmpi/mpi"
)

const (
	perRound  = 1000 // messages that a rank sends before all meet
	window    = 16   // sends, and receives by wildcards, under way at a time
	specifics = 8    // receives that a round begins with, of one sender and tag each
)

// player is what a rank keeps from round to round. Two goroutines use it, one that
// sends and one that receives: what belongs to which is told.
type player struct {
	c    *mpi.Comm
	seed uint64

	// of who sends
	dice  *rand.Rand
	sent  [][tags]int // by rank and tag, in all rounds
	out   [window][]byte
	sends [window]mpi.Request
	bytes int64

	// of who receives
	luck  *rand.Rand
	got   [][tags]int
	in    [window + specifics][]byte
	recvs [window + specifics]mpi.Request
	stats [window + specifics]mpi.Status
}

func newPlayer(c *mpi.Comm, seed uint64) *player {
	p := &player{
		c: c, seed: seed, sent: make([][tags]int, c.Size()), got: make([][tags]int, c.Size()),
		dice: rand.New(rand.NewPCG(seed, uint64(2*c.Rank()))), luck: rand.New(rand.NewPCG(seed, uint64(2*c.Rank()+1))),
	}
	for i := range p.out {
		p.out[i] = make([]byte, maxSize)
	}
	for i := range p.in {
		p.in[i] = make([]byte, maxSize)
	}
	return p
}

// round sends n messages to ranks and by tags at random, and receives what the
// others have sent to this one.
func (p *player) round(n int) error {
	plan := make([]message, n)
	send := make([]int, tags*p.c.Size())
	for i := range plan {
		to, tag := p.dice.IntN(p.c.Size()), p.dice.IntN(tags)
		plan[i] = message{p.c.Rank(), to, tag, p.sent[to][tag]}
		p.sent[to][tag]++
		send[to*tags+tag]++
	}
	recv := make([]int, len(send)) // also ends the last round: all have all of it
	if err := mpi.Alltoall(p.c, send, recv); err != nil {
		return err
	}
	var sending error
	var sender sync.WaitGroup
	sender.Go(func() { sending = p.sendAll(plan) })
	err := p.receiveAll(recv)
	if err != nil {
		return err // ends the job, and the sender with it
	}
	sender.Wait()
	return sending
}

// sendAll sends messages in all ways, so many at a time.
func (p *player) sendAll(plan []message) error {
	for _, m := range plan {
		i, err := p.slot()
		if err != nil {
			return err
		}
		key := m.key(p.seed)
		b := p.out[i][:sizeOf(key)]
		fill(b, key)
		switch p.dice.IntN(8) {
		case 0:
			err = mpi.Send(p.c, b, m.to, m.tag)
		case 1:
			err = mpi.Ssend(p.c, b, m.to, m.tag)
		case 2:
			p.sends[i], err = mpi.Issend(p.c, b, m.to, m.tag)
		default:
			p.sends[i], err = mpi.Isend(p.c, b, m.to, m.tag)
		}
		if err != nil {
			return err
		}
		p.bytes += int64(len(b))
	}
	return mpi.WaitAll(p.sends[:], nil)
}

// slot returns a buffer that is not in use.
func (p *player) slot() (int, error) {
	for i := range p.sends {
		if p.sends[i].None() {
			return i, nil
		}
	}
	i, _, err := mpi.WaitAny(p.sends[:])
	return i, err
}

// receiveAll receives as many messages as counts say, by rank and tag. Some are
// asked for by their sender and tag before they come, the others by any: a rank
// that waited for one message alone could wait for a sender that waits for it.
func (p *player) receiveAll(counts []int) error {
	left := 0
	for _, n := range counts {
		left += n
	}
	var early [specifics]message
	n := 0
	for ; n < specifics && left > 0; n++ {
		at := p.luck.IntN(len(counts))
		if counts[at] == 0 {
			break
		}
		counts[at]--
		left--
		m := message{at / tags, p.c.Rank(), at % tags, p.got[at/tags][at%tags]}
		p.got[m.from][m.tag]++
		early[n] = m
		var err error
		if p.recvs[window+n], err = mpi.Irecv(p.c, p.in[window+n], m.from, m.tag); err != nil {
			return err
		}
	}
	for left > 0 {
		k, err := p.receiveSome(left)
		if err != nil {
			return err
		}
		left -= k
	}
	for i, m := range early[:n] {
		st, err := p.recvs[window+i].Wait()
		if err == nil {
			err = m.check(p.in[window+i][:st.Bytes], p.seed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receiveSome receives one message or a few, of left that are to come.
func (p *player) receiveSome(left int) (int, error) {
	if p.luck.IntN(2) == 0 {
		return p.receiveAny(1 + p.luck.IntN(min(left, window)))
	}
	var st mpi.Status
	var msg mpi.Message
	var err error
	if p.luck.IntN(3) == 0 {
		if msg, err = p.c.Mprobe(mpi.AnySource, mpi.AnyTag); err == nil {
			st, err = mpi.Mrecv(&msg, p.in[0])
		}
		return 1, errors.Join(err, p.take(st, p.in[0]))
	}
	if st, err = p.c.Probe(mpi.AnySource, mpi.AnyTag); err != nil {
		return 0, err
	}
	source, tag := st.Source, st.Tag
	switch p.luck.IntN(4) { // what is there matches all of these
	case 0:
		source = mpi.AnySource
	case 1:
		tag = mpi.AnyTag
	case 2:
		source, tag = mpi.AnySource, mpi.AnyTag
	}
	st, err = mpi.Recv(p.c, p.in[0], source, tag)
	return 1, errors.Join(err, p.take(st, p.in[0]))
}

// receiveAny asks for n messages at once, whatever they are: they match in the
// order of asking.
func (p *player) receiveAny(n int) (int, error) {
	for i := range n {
		var err error
		if p.recvs[i], err = mpi.Irecv(p.c, p.in[i], mpi.AnySource, mpi.AnyTag); err != nil {
			return 0, err
		}
	}
	if err := mpi.WaitAll(p.recvs[:n], p.stats[:n]); err != nil {
		return 0, err
	}
	for i := range n {
		if err := p.take(p.stats[i], p.in[i]); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// take checks a message that was received by a wildcard.
func (p *player) take(st mpi.Status, b []byte) error {
	if st.Source < 0 || st.Source >= p.c.Size() || st.Tag < 0 || st.Tag >= tags {
		return fmt.Errorf("a message from %d with tag %d, which nobody sends", st.Source, st.Tag)
	}
	m := message{st.Source, p.c.Rank(), st.Tag, p.got[st.Source][st.Tag]}
	p.got[st.Source][st.Tag]++
	return m.check(b[:st.Bytes], p.seed)
}
