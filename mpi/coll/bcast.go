package coll

const (
	// treeBytes is how large a buffer may be to travel whole from rank to rank.
	// At 50 µs and 5 Gb/s, a LAN's figures, 32 KiB take as long on the line as the
	// latency; above, log2 N times the line costs more than more messages do.
	treeBytes = 32 << 10

	// chainBytes is from where a chain is better than scatter and allgather: there
	// the segments fill it.
	chainBytes = 1 << 20

	// chainSegment makes a segment's time on a LAN's line (200 µs) a few times the
	// latency of starting it.
	chainSegment = 128 << 10
)

func bcasts() []algorithm {
	return []algorithm{
		{name: "star", best: func(t *Topo, _ *Args) bool { return crowded(t) }, build: func(b *builder) { bcastTree(b, star(b.t)) }},
		{name: "shared", best: bestShared, build: bcastShared},
		{name: "levels", best: func(t *Topo, a *Args) bool {
			return levels(t) && (a.bytes() < treeBytes || manySites(t))
		}, build: func(b *builder) { bcastTree(b, bySite(b.t)) }},
		{name: "chain", best: func(t *Topo, a *Args) bool {
			return t.Size > 2 && a.bytes() >= chainBytes && a.bytes() >= t.Size*chainSegment
		}, build: bcastChain},
		{name: "scatter_allgather", best: func(t *Topo, a *Args) bool {
			return t.Size > 2 && a.bytes() >= treeBytes && a.Count >= t.Size
		}, build: bcastScatter},
		{name: "binomial", build: func(b *builder) { bcastTree(b, flat(b.t)) }},
	}
}

// Broadcast down a tree: binomial where the layout is flat; with sites and hosts
// the root sends to one rank of every other site at once, then halves of the
// hosts, then halves of a host's ranks get it. For small buffers.
//
// Cost: ceil(log2 n) (α + mβ) inside a site, one latency and m bytes to each other
// site; one round crosses sites. Source: MagPIe; Karonis et al., MPICH-G2, 2000.
func bcastTree(b *builder, l *layout) {
	b.treeBcast(l.tree(0, b.size, l.pos[b.a.Root], l.pos[b.me]), b.ref(Recv, 0, b.a.Count))
}

// Broadcast by scatter and allgather: a tree hands each rank a part, and all give
// theirs to all. For medium and large buffers among ranks that are near.
//
// Cost: (ceil(log2 N) + N-1) α + 2 mβ (N-1)/N, or (ceil(log2 N) + 1) α where few ranks
// send each other their parts at once. Source: van de Geijn, 1994.
func bcastScatter(b *builder) {
	l := bySite(b.t)
	me, root := l.pos[b.me], l.pos[b.a.Root]
	parts := b.parts(Recv, 0, b.a.Count, b.size)
	t := l.tree(0, b.size, root, me)
	if t.parent >= 0 {
		b.recv(t.parent, joined(parts[t.lo:t.hi]))
		b.next()
	}
	for _, k := range t.kids {
		b.send(k.rank, joined(parts[k.lo:k.hi]))
	}
	b.next()
	b.allgather(team{l.order, me, root}, parts)
}

// Broadcast along a chain, segment by segment; neighbours in the chain are
// neighbours on hosts, so that a byte enters and leaves a host once. For large
// buffers among few ranks.
//
// Cost: (N-2 + m/s) (α + sβ) with segments of s bytes: mβ where m is large.
func bcastChain(b *builder) {
	l := bySite(b.t)
	root := l.pos[b.a.Root]
	at := (l.pos[b.me] - root + b.size) % b.size
	neighbour := func(d int) int { return l.order[(root+at+d)%b.size] }
	n := max(1, b.a.bytes()/chainSegment)
	segments := b.parts(Recv, 0, b.a.Count, n)
	for k := range n + 1 {
		if at > 0 && k < n {
			b.recv(neighbour(-1), segments[k])
		}
		if at < b.size-1 && k > 0 {
			b.send(neighbour(1), segments[k-1])
		}
		b.next()
	}
}
