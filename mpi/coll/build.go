package coll

// builder writes a schedule down, step by step, into one slab. Messages join the
// round being built, local steps follow them; a message after a local step
// opens a round of its own.
type builder struct {
	t        *Topo
	a        Args
	me, size int

	steps  []Step
	ends   []int // where each closed round ends in steps
	start  int   // where the round being built begins
	closed bool  // it takes no more messages: it has local steps or waits
	tmp    int
}

func newBuilder(t *Topo, a Args) *builder {
	return &builder{t: t, a: a, me: t.Rank, size: t.Size, steps: make([]Step, 0, 8), ends: make([]int, 0, 8)}
}

// next closes the round being built, unless there is nothing in it.
func (b *builder) next() {
	if len(b.steps) > b.start || b.closed {
		b.ends = append(b.ends, len(b.steps))
		b.start, b.closed = len(b.steps), false
	}
}

func (b *builder) add(s Step) int {
	if b.closed {
		b.next()
	}
	b.steps = append(b.steps, s)
	return len(b.steps) - 1
}

// send and recv start messages that end with their round. Nothing is sent where
// there is nothing to send.
func (b *builder) send(to int, src Ref) {
	if src.N > 0 {
		b.add(Step{Kind: SendStep, Peer: to, Src: src})
	}
}

func (b *builder) recv(from int, dst Ref) {
	if dst.N > 0 {
		b.add(Step{Kind: RecvStep, Peer: from, Dst: dst})
	}
}

// pending is a message that was begun and has not been awaited; below 0 there is
// none.
type pending int

// begun marks a message as not awaited yet. Until then Wait holds the round it
// began in, inverted.
func (b *builder) begun(i int) pending {
	b.steps[i].Wait = ^int32(len(b.ends))
	return pending(i)
}

// isend and irecv start messages that are awaited later: by await, or at the end
// of the schedule.
func (b *builder) isend(to int, src Ref) pending {
	if src.N == 0 {
		return -1
	}
	return b.begun(b.add(Step{Kind: SendStep, Peer: to, Src: src}))
}

func (b *builder) irecv(from int, dst Ref) pending {
	if dst.N == 0 {
		return -1
	}
	return b.begun(b.add(Step{Kind: RecvStep, Peer: from, Dst: dst}))
}

// await ends a message with the round being built: its local steps may use it.
func (b *builder) await(ps ...pending) {
	for _, p := range ps {
		if p >= 0 && b.steps[p].Wait < 0 {
			b.steps[p].Wait = int32(len(b.ends)) - ^b.steps[p].Wait
			b.closed = true
		}
	}
}

// signal and expect exchange empty messages.
func (b *builder) signal(to int)   { b.add(Step{Kind: SendStep, Peer: to}) }
func (b *builder) expect(from int) { b.add(Step{Kind: RecvStep, Peer: from}) }

// reduce makes dst = src op dst.
func (b *builder) reduce(src, dst Ref) {
	if dst.N > 0 {
		b.steps = append(b.steps, Step{Kind: ReduceStep, Src: src, Dst: dst})
		b.closed = true
	}
}

func (b *builder) copy(src, dst Ref) {
	if dst.N > 0 && src != dst {
		b.steps = append(b.steps, Step{Kind: CopyStep, Src: src, Dst: dst})
		b.closed = true
	}
}

// fold combines parts, which stand in the order of ranks, into the last of them.
// It goes from the right to the left, everywhere alike: ranks that fold the same
// parts get the same bits.
func (b *builder) fold(parts []Ref) {
	last := len(parts) - 1
	for i := last - 1; i >= 0; i-- {
		b.reduce(parts[i], parts[last])
	}
}

// align keeps scratch fit for whatever the elements are: no type needs more.
const align = 16

// alloc takes n bytes of scratch.
func (b *builder) alloc(n int) Ref {
	r := Ref{Tmp, b.tmp, n}
	b.tmp += (n + align - 1) &^ (align - 1)
	return r
}

// ref names elements [lo, hi) of a buffer.
func (b *builder) ref(buf Buf, lo, hi int) Ref {
	return Ref{buf, lo * b.a.Elem, (hi - lo) * b.a.Elem}
}

// input is where a rank's contribution of the whole buffer is.
func (b *builder) input() Ref {
	if b.a.InPlace {
		return Ref{Recv, 0, b.a.bytes()}
	}
	return Ref{Send, 0, b.a.bytes()}
}

// schedule ends the work. Messages that nobody has awaited end with the last
// round.
func (b *builder) schedule() Schedule {
	b.next()
	last := int32(len(b.ends) - 1)
	for i := range b.steps {
		if w := &b.steps[i].Wait; *w < 0 {
			*w = last - ^*w
		}
	}
	s := Schedule{Rounds: make([]Round, len(b.ends)), Tmp: b.tmp, Far: manySites(b.t) && b.longest() <= packet}
	from := 0
	for i, to := range b.ends {
		s.Rounds[i] = b.steps[from:to:to]
		from = to
	}
	return s
}

// packet is what goes in one over any way, headers aside, bytes.
const packet = 1 << 10

// longest is how long the longest of this rank's messages is, bytes.
func (b *builder) longest() int {
	n := 0
	for _, s := range b.steps {
		if s.Kind == SendStep || s.Kind == RecvStep {
			n = max(n, s.Src.N, s.Dst.N)
		}
	}
	return n
}

// cut returns part i of n nearly equal consecutive parts of count elements.
func cut(count, n, i int) (lo, hi int) { return count * i / n, count * (i + 1) / n }

// common returns what two ranges share; hi is below lo where they share nothing.
func common(lo1, hi1, lo2, hi2 int) (lo, hi int) {
	lo = max(lo1, lo2)
	return lo, max(lo, min(hi1, hi2))
}
