package coll

const (
	// bruckBytes is up to where a block is worth sending through other ranks, log2 N
	// / 2 times, to need fewer messages; bruckRanks from where on.
	bruckBytes = 256
	bruckRanks = 8

	// pairwiseBytes is from where blocks go one at a time each way: then a rank's
	// line is full, and more at once would only meet at the receivers.
	pairwiseBytes = 64 << 10

	// window is how many blocks a rank has under way each way below that.
	window = 16

	// agentBytes is up to where the blocks between two sites are collected: one
	// message's headers and handling cost about as much; agentRanks is how many
	// ranks a site needs to have for that.
	agentBytes = 1 << 10
	agentRanks = 8
)

func alltoalls() []algorithm {
	return []algorithm{
		byBoard(func(t *Topo, a *Args) int { return t.Size * a.bytes() }, alltoallBoard),
		{name: "agents", best: func(t *Topo, a *Args) bool {
			return manySites(t) && a.bytes() <= agentBytes && largestSite(t) >= agentRanks
		}, build: alltoallAgents},
		{name: "leaders", best: func(t *Topo, a *Args) bool {
			return manySites(t) && t.Size*largestSite(t)*a.bytes() <= leadersBytes
		}, build: alltoallLeaders},
		{name: "bruck", best: func(t *Topo, a *Args) bool {
			return !manySites(t) && t.Size >= bruckRanks && a.bytes() <= bruckBytes && !crowded(t)
		}, build: alltoallBruck},
		{name: "pairwise", best: func(t *Topo, a *Args) bool { return a.bytes() >= pairwiseBytes && !crowded(t) }, build: func(b *builder) { alltoallDirect(b, 1) }},
		{name: "linear", build: func(b *builder) { alltoallDirect(b, window) }},
	}
}

func alltoallvs() []algorithm {
	// Which is better depends on sizes that only pairs of ranks know.
	return []algorithm{
		{name: "linear", build: func(b *builder) { alltoallDirect(b, window) }},
		{name: "pairwise", build: func(b *builder) { alltoallDirect(b, 1) }},
	}
}

// largestSite is the number of ranks of the site that has most.
func largestSite(t *Topo) int {
	if t.Site == nil {
		return t.Size
	}
	n, most := map[int32]int{}, 0
	for _, s := range t.Site {
		n[s]++
		most = max(most, n[s])
	}
	return most
}

// All-to-all directly: each block goes in a message of its own. Those to and from
// other sites are all started at first; those inside the site follow window by
// window, the k-th to the rank k above and from the rank k below. With a window of
// one it is the pairwise exchange.
//
// Cost: (N-1) (α/w + mβ); one latency between sites, no byte twice; one round
// crosses sites. In place, blocks are exchanged pair by pair through scratch of a
// window's size, and of the blocks from other sites.
func alltoallDirect(b *builder, w int) {
	if b.a.InPlace {
		b.swapBlocks(w)
		return
	}
	src := b.blockRefs(Send, b.a.Counts, b.a.Displs, b.size)
	dst := b.blockRefs(Recv, b.a.RecvCounts, b.a.RecvDispls, b.size)
	for d := 1; d < b.size; d++ {
		if to := (b.me + d) % b.size; b.far(to) {
			b.isend(to, src[to])
		}
		if from := (b.me - d + b.size) % b.size; b.far(from) {
			b.irecv(from, dst[from])
		}
	}
	for d := 1; d < b.size; d++ {
		if to := (b.me + d) % b.size; !b.far(to) {
			b.send(to, src[to])
		}
		if from := (b.me - d + b.size) % b.size; !b.far(from) {
			b.recv(from, dst[from])
		}
		if d%w == 0 {
			b.next()
		}
	}
	b.copy(src[b.me], dst[b.me])
}

// swapBlocks exchanges the blocks of Recv in place. In step k ranks whose sum is k
// (mod N) are partners, so that whoever sends to a rank receives from it.
func (b *builder) swapBlocks(w int) {
	blocks := b.blockRefs(Recv, b.a.RecvCounts, b.a.RecvDispls, b.size)
	partner := func(k int) int { return (k - b.me + b.size) % b.size }
	held := make([]Ref, b.size)
	var waiting []pending
	for k := range b.size {
		if p := partner(k); b.far(p) {
			held[p] = b.alloc(blocks[p].N)
			waiting = append(waiting, b.isend(p, blocks[p]), b.irecv(p, held[p]))
		}
	}
	largest := 0
	for r, block := range blocks {
		if !b.far(r) {
			largest = max(largest, block.N)
		}
	}
	spare := make([]Ref, min(w, b.size))
	for i := range spare {
		spare[i] = b.alloc(largest)
	}
	for k := 0; k < b.size; k += w {
		for i := k; i < min(k+w, b.size); i++ {
			if p := partner(i); p != b.me && !b.far(p) {
				held[p] = spare[i-k].from(0, blocks[p].N)
				b.send(p, blocks[p])
				b.recv(p, held[p])
			}
		}
		for i := k; i < min(k+w, b.size); i++ {
			if p := partner(i); p != b.me && !b.far(p) {
				b.copy(held[p], blocks[p])
			}
		}
		b.next()
	}
	b.await(waiting...)
	for p := range blocks {
		if b.far(p) {
			b.copy(held[p], blocks[p])
		}
	}
}

// All-to-all after Bruck: in round k a block travels 2^k ranks up if bit k of the
// way it has to go is set. For many ranks and small blocks.
//
// Cost: ceil(log2 N) (α + N/2 mβ). Source: Bruck et al., 1997.
func alltoallBruck(b *builder) {
	n, m := b.size, b.a.bytes()
	buf := Send
	if b.a.InPlace {
		buf = Recv
	}
	// Slot j holds a block that has to go j ranks up, less what it has gone.
	slots, out, in := b.alloc(n*m), b.alloc(n/2*m+m), b.alloc(n/2*m+m)
	for j := range n {
		b.copy(Ref{buf, (b.me + j) % n * m, m}, slots.from(j*m, m))
	}
	for d := 1; d < n; d *= 2 {
		c := 0
		for j := range n {
			if j&d != 0 {
				b.copy(slots.from(j*m, m), out.from(c*m, m))
				c++
			}
		}
		b.send((b.me+d)%n, out.from(0, c*m))
		b.recv((b.me-d+n)%n, in.from(0, c*m))
		c = 0
		for j := range n {
			if j&d != 0 {
				b.copy(in.from(c*m, m), slots.from(j*m, m))
				c++
			}
		}
	}
	for j := range n {
		b.copy(slots.from(j*m, m), Ref{Recv, (b.me - j + n) % n * m, m})
	}
}
