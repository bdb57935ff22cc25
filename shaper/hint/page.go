package hint

import (
	"errors"
	"sync/atomic"
	"unsafe"
)

// Size is a page's, in bytes.
const Size = 4096

// The layout of a page, in the machine's byte order; offsets in bytes. The program
// writes all of it but maxrate, which the daemon writes. mpishim/preload/pattern
// has the same in C.
//
//	  0  u32  magic          0x544e484d, "MHNT" where the low byte comes first
//	  4  u32  version        1
//	  8  u64  generation     counts changes of what follows; see reader
//	 16  u64  matb           bits per second that the program has set; 0: none
//	 24  u64  parts          of Request.Parts, from the job's pattern; 0: none
//	 32  u64  maxrate        B in bits per second, by the daemon; 0: not known
//	 40  u64  dropped        operations that found no free slot
//	 64  u64  entered[8]     by Op: operations begun since the start
//	128  u64  left[8]        and ended
//	256  u64  slots[64]      operations under way: hosts<<32 | op<<16 | count
//
// Every word is written and read at once and says something by itself, so there is
// no lock that a killed program could hold, and none that a reader waits for. A slot
// is free at 0; it is found and changed by compare-and-swap, so threads of a program
// may enter and leave as they like. What was before an operation is what is left
// when its slot is free again.
const (
	pageMagic   = 0x544e484d
	pageVersion = 1

	offMagic   = 0
	offVersion = 4
	offGen     = 8
	offMATB    = 16
	offParts   = 24
	offMaxRate = 32
	offDropped = 40
	offEntered = 64
	offLeft    = 128
	offSlots   = 256

	slots    = 64
	maxCount = 1<<16 - 1 // operations in one slot
)

// page is the words of a page's memory.
type page []byte

func (p page) word(off int) *atomic.Uint64  { return (*atomic.Uint64)(unsafe.Pointer(&p[off])) }
func (p page) half(off int) *atomic.Uint32  { return (*atomic.Uint32)(unsafe.Pointer(&p[off])) }
func (p page) slot(i int) *atomic.Uint64    { return p.word(offSlots + 8*i) }
func (p page) entered(op Op) *atomic.Uint64 { return p.word(offEntered + 8*int(op)) }
func (p page) left(op Op) *atomic.Uint64    { return p.word(offLeft + 8*int(op)) }

// format makes an empty page of zeroed memory.
func (p page) format() {
	p.half(offVersion).Store(pageVersion)
	p.half(offMagic).Store(pageMagic)
}

var errPage = errors.New("hint: the page is not one of ours, or of another version")

// check says whether memory is a page.
func (p page) check() error {
	if len(p) < Size || p.half(offMagic).Load() != pageMagic || p.half(offVersion).Load() != pageVersion {
		return errPage
	}
	return nil
}

func slotKey(op Op, hosts int) uint64 { return uint64(hosts)<<32 | uint64(op)<<16 }

// enter counts an operation in the slot of its like or in a free one.
func (p page) enter(op Op, hosts int) bool {
	key := slotKey(op, hosts)
	for i := range slots {
		s := p.slot(i)
		for v := s.Load(); v&^maxCount == key && v&maxCount != 0 && v&maxCount < maxCount; v = s.Load() {
			if s.CompareAndSwap(v, v+1) {
				return p.noted(op)
			}
		}
	}
	for i := range slots {
		if p.slot(i).CompareAndSwap(0, key|1) {
			return p.noted(op)
		}
	}
	p.word(offDropped).Add(1)
	return false
}

func (p page) noted(op Op) bool {
	p.entered(op).Add(1)
	p.word(offGen).Add(1)
	return true
}

// leave takes one operation of the kind out of its slot.
func (p page) leave(op Op, hosts int) {
	key := slotKey(op, hosts)
	for i := range slots {
		s := p.slot(i)
		for v := s.Load(); v&^maxCount == key && v&maxCount != 0; v = s.Load() {
			next := v - 1
			if next == key {
				next = 0
			}
			if s.CompareAndSwap(v, next) {
				p.left(op).Add(1)
				p.word(offGen).Add(1)
				return
			}
		}
	}
}

func (p page) set(off int, v int64) {
	p.word(off).Store(uint64(v))
	p.word(offGen).Add(1)
}

// reader is the daemon's view of a page.
type reader struct {
	page
	gen  uint64 // at which last was read
	read bool
	last Request
}

// request returns what the page asks for. It looks at the generation before the
// rest, so that what changes while it reads is read the next time; a page that did
// not change costs one load.
func (r *reader) request() Request {
	gen := r.word(offGen).Load()
	if !r.read || gen != r.gen {
		r.last, r.gen, r.read = r.page.request(), gen, true
	}
	return r.last
}

// request reads a page that may hold anything.
func (p page) request() Request {
	var r Request
	for i := range slots {
		v := p.slot(i).Load()
		op, hosts := Op(v>>16), int(v>>32)
		if v&maxCount == 0 || v>>16&0xffff >= maxOps || op == None || hosts == 0 {
			continue
		}
		if hosts = min(hosts, MaxHosts); hosts > r.Hosts {
			r.Op, r.Hosts = op, hosts
		}
	}
	if v := p.word(offMATB).Load(); v != 0 && v <= MaxMATB {
		r.MATB = max(int64(v), MinMATB)
	}
	if v := p.word(offParts).Load(); v != 0 {
		r.Parts = int64(min(max(v, Whole), maxParts))
	}
	return r
}
