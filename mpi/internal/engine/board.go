package engine

import (
	"math/bits"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"
)

// Processes of a host can show each other a few bytes without sending them anything:
// each writes its own to its page, which all the others see. Where processes share
// processors that is an exchange among all of them in one turn of each, while messages
// take one for each step of theirs.
//
// A member of a Board has two lines in its page, used in turn. It shows the next thing
// when it has seen everybody's last one. So who shows the next but one, in the line that
// this is in, has seen everybody show the next, and everybody had seen this.

const (
	// MostShown is how many bytes may be shown at a time.
	MostShown = boardLine - boardHead

	boardLine  = 256
	boardHead  = 16
	boardBegin = 512 // of the page; what is before is not of boards
	boardSlots = 31  // boards in a page; none is given back, since somebody may still look
	mostBoard  = 64  // members
)

// pageBytes is the size of what a process shows to others of its host: 16 KiB, or a page.
func pageBytes() int { return max(boardBegin+boardSlots*2*boardLine, os.Getpagesize()) }

// line is where something is shown.
type line struct {
	word uint64 // which turn's it is: written last
	size uint32 // or shownVoid
	_    uint32
	data [MostShown]byte
}

// shownVoid is the size of what a member has given up and shows all the same, so that
// nobody waits for it before the next.
const shownVoid = 1<<32 - 1

// linesOf returns a board's lines in a page.
func linesOf(page []byte, slot int) *[2]line {
	return (*[2]line)(unsafe.Pointer(&page[boardBegin+slot*2*boardLine]))
}

// Board is where the members of a group show each other something at a time.
type Board struct {
	e       *Engine
	ctx     Context
	members []Proc
	me      int
	lines   []*[2]line // by member; not looked at when that is gone
	turn    uint       // counts what was shown
	first   *showing   // that is under way
	last    *showing
	spare   *showing
	shown   uint64 // the word shown last
	err     error  // somebody is gone, or the board was closed
	listed  bool   // among those that are polled

	// Of the last turn that somebody has given up, as long as its caller waits to be told.
	given     func(*Op, error)
	givenTurn uint32
}

// showing is one thing that all members show.
type showing struct {
	word    uint64
	turn    uint32
	size    uint32 // of what is shown here
	void    bool   // somebody has given it up
	rung    bool   // who has not shown it was woken, see strays
	missing uint64 // members that have not been seen to show it
	own     []byte // what will be shown, when that has to wait
	dst     []byte // of all members; nil: nobody wants it
	done    func(*Op, error)
	err     error
	next    *showing
}

// ReserveBoard takes a place in this process's page for a board; below 0: there is none
// left, or no page.
func (e *Engine) ReserveBoard() int {
	e.gate.lock()
	defer e.leave()
	if e.page == nil || e.reserved == boardSlots {
		return -1
	}
	e.reserved++
	return e.reserved - 1
}

// OpenBoard returns the board of a group, this process among it, whose members have
// reserved these places; nil if this process cannot see all of them. All must be able to
// before anything is shown. A message in the context ctx whose tag is a turn's is taken as
// a sign that its sender has begun something else in that turn, which fails with ErrStray
// then: the board is of no use any more, since nobody knows what its sender will show.
func (e *Engine) OpenBoard(ctx Context, members []Proc, slots []int) *Board {
	e.gate.lock()
	defer e.leave()
	if len(members) > mostBoard {
		return nil
	}
	b := &Board{e: e, ctx: ctx, members: members, me: -1}
	for i, p := range members {
		page := e.page
		if p == e.self {
			b.me = i
		} else if page = e.pageOf(p); page == nil {
			return nil
		}
		if page == nil || slots[i] < 0 || slots[i] >= boardSlots {
			return nil
		}
		b.lines = append(b.lines, linesOf(page, slots[i]))
	}
	if b.me < 0 {
		return nil
	}
	e.boards = append(e.boards, b)
	return b
}

// pageOf is what a process shows; nil: it cannot be seen, or read.
func (e *Engine) pageOf(p Proc) []byte {
	if p < 0 || int(p) >= len(e.peers) || e.peers[p].state != up {
		return nil
	}
	c := e.peers[p].conns[0]
	if c.ring == nil || c.swapped {
		return nil
	}
	return c.ring.page
}

// CloseBoard ends what is under way on a board, and what will be, with err. What all have
// shown ends well.
func (o *Op) CloseBoard(b *Board, err error) {
	if b.err == nil {
		b.poll()
	}
	b.close(err)
	o.e.boards = slices.DeleteFunc(o.e.boards, func(other *Board) bool { return other == b })
}

func (b *Board) close(err error) {
	b.err = err
	b.dropAll(err)
}

// Show shows data, at most MostShown bytes, as a turn that is not another's of late, and
// puts what all members show, as many bytes each, one after another into dst. Then done
// is called, from the list of calls put off. All members have to show the same turns in
// the same order.
//
// If somebody gives the turn up, done is called only when a member is gone or the board is
// closed: who gives up has to tell.
func (o *Op) Show(b *Board, turn uint32, data, dst []byte, done func(*Op, error)) error {
	if b.err != nil {
		return b.err
	}
	if len(data) > MostShown || len(dst) != len(data)*len(b.members) {
		return ErrTooLarge
	}
	s := b.add(turn, uint32(len(data)))
	s.dst, s.done = dst, done
	copy(dst[b.me*len(data):], data)
	if b.first == s {
		b.show(s, data)
	} else {
		s.own = append(s.own[:0], data...)
	}
	b.poll()
	b.e.watchBoard(b)
	return nil
}

// Void is Show of a turn that is given up before it was shown.
func (o *Op) Void(b *Board, turn uint32) {
	if b.err != nil {
		return
	}
	s := b.add(turn, shownVoid)
	if b.first == s {
		b.show(s, nil)
	}
	b.poll()
	b.e.watchBoard(b)
}

// LetGo has a turn that was shown go on without its caller: dst is left alone from here
// on, and done is not called, unless the turn has ended already.
func (o *Op) LetGo(b *Board, turn uint32) {
	for s := b.first; s != nil; s = s.next {
		if s.turn == turn {
			s.dst, s.done = nil, nil
		}
	}
	if b.givenTurn == turn {
		b.given = nil
	}
}

// add puts a turn behind those that are under way.
func (b *Board) add(turn, size uint32) *showing {
	s := b.spare
	if s == nil {
		s = new(showing)
	}
	b.spare = nil
	*s = showing{word: 1<<63 | uint64(turn), turn: turn, size: size, own: s.own[:0]}
	s.missing = (1<<len(b.members) - 1) &^ (1 << b.me)
	if b.last == nil {
		b.first = s
	} else {
		b.last.next = s
	}
	b.last = s
	return s
}

// show writes to our own line. Whoever shows something last sees that all have, and wakes
// who sleeps: each sleeper has looked since it has said that it does.
func (b *Board) show(s *showing, data []byte) {
	b.turn++
	l := &b.lines[b.me][b.turn%2]
	copy(l.data[:], data)
	l.size = s.size
	b.shown = s.word
	atomic.StoreUint64(&l.word, s.word)
	if b.ready() {
		b.ring(1<<len(b.members) - 1)
	}
}

// ring wakes members that sleep.
func (b *Board) ring(members uint64) {
	for m := members &^ (1 << b.me); m != 0; m &= m - 1 {
		p := b.e.peers[b.members[bits.TrailingZeros64(m)]]
		if p.state != up {
			continue
		}
		if w := p.conns[0].ring; w != nil && w.asleep.Load() != 0 {
			w.bell()
		}
	}
}

// ready reports whether all show what is waited for. Before that nobody can go on.
func (b *Board) ready() bool {
	if b.first == nil {
		return false
	}
	for m := b.first.missing; m != 0; m &= m - 1 {
		if !b.has(b.first, bits.TrailingZeros64(m)) {
			return false
		}
	}
	return true
}

// has reports whether a member shows a thing that is shown here.
func (b *Board) has(s *showing, i int) bool {
	return atomic.LoadUint64(&b.lines[i][b.turn%2].word) == s.word
}

// poll takes what all show, if all do, and reports whether that was so.
func (b *Board) poll() bool {
	any := false
	for b.first != nil && b.ready() {
		s := b.first
		b.look(s)
		b.end(s, s.err)
		if next := b.first; next != nil {
			b.show(next, next.own)
		}
		any = true
	}
	return any
}

// look takes what there is to be seen.
func (b *Board) look(s *showing) {
	for m := s.missing; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros64(m); b.has(s, i) {
			b.see(s, i)
		}
	}
}

// see takes what a member shows.
func (b *Board) see(s *showing, i int) {
	s.missing &^= 1 << i
	l := &b.lines[i][b.turn%2]
	switch size := l.size; {
	case size == shownVoid:
		s.void = true
	case s.size == shownVoid:
	case size != s.size:
		s.err = ErrTruncate{Message: int64(min(size, MostShown)), Buffer: int64(s.size)}
	case s.dst != nil:
		copy(s.dst[i*int(size):(i+1)*int(size)], l.data[:])
	}
}

// end takes the first thing out, which is over.
func (b *Board) end(s *showing, err error) {
	if b.first = s.next; b.first == nil {
		b.last = nil
	}
	switch {
	case s.done == nil:
	case s.void:
		b.given, b.givenTurn = s.done, s.turn
	default:
		b.e.deferred = append(b.e.deferred, deferred{done: s.done, err: err})
	}
	s.dst, s.done = nil, nil
	b.spare = s
}

// without says that a member is gone, and reports whether it was waited for. What it has
// shown before has been seen.
func (b *Board) without(p Proc, err error) bool {
	for i, member := range b.members {
		if member != p || i == b.me {
			continue
		}
		any := false
		if b.poll(); b.first != nil {
			b.look(b.first)
		}
		if b.err == nil {
			b.err = err
		}
		if s := b.first; s != nil && s.missing&(1<<i) == 0 { // this one may still end well
			for next := s.next; next != nil; next = next.next {
				any = b.drop(next, err) || any
			}
			s.next, b.last = nil, s
			return any
		}
		return b.dropAll(err)
	}
	return false
}

// dropAll drops everything, and reports whether anybody waited for it.
func (b *Board) dropAll(err error) (any bool) {
	for s := b.first; s != nil; s = s.next {
		any = b.drop(s, err) || any
	}
	b.first, b.last = nil, nil
	if b.given != nil { // who should have told may be gone
		b.e.deferred = append(b.e.deferred, deferred{done: b.given, err: err})
		b.given, any = nil, true
	}
	return any
}

// drop ends a thing that will not be shown or seen any more. It reports whether anybody
// waited for it.
func (b *Board) drop(s *showing, err error) bool {
	waited := s.done != nil
	if waited {
		b.e.deferred = append(b.e.deferred, deferred{done: s.done, err: err})
	}
	s.dst, s.done = nil, nil
	return waited
}

// unseen has all boards do without a process that is gone.
func (e *Engine) unseen(p Proc, err error) bool {
	any := false
	for _, b := range e.boards {
		any = b.without(p, err) || any
	}
	return any
}

// watchBoard has a board polled as long as something is under way on it.
func (e *Engine) watchBoard(b *Board) {
	if b.first != nil && !b.listed {
		b.listed = true
		e.watched = append(e.watched, b)
	}
}

// pollBoards polls the boards on which something is under way.
func (e *Engine) pollBoards() bool {
	any := false
	for i := 0; i < len(e.watched); {
		b := e.watched[i]
		any = b.poll() || any
		if b.first != nil {
			i++
			continue
		}
		b.listed = false
		last := len(e.watched) - 1
		e.watched[i], e.watched[last] = e.watched[last], nil
		e.watched = e.watched[:last]
	}
	return any
}

var _ [boardLine]byte = [unsafe.Sizeof(line{})]byte{}
