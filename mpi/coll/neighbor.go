package coll

func neighborAllgathers() []algorithm {
	return []algorithm{{name: "direct", build: func(b *builder) {
		all := b.ref(Send, 0, b.a.Count)
		src := make([]Ref, len(b.a.Dests))
		for i := range src {
			src[i] = all
		}
		b.neighbors(src, b.blockRefs(Recv, b.a.Counts, b.a.Displs, len(b.a.Sources)))
	}}}
}

func neighborAlltoalls() []algorithm {
	return []algorithm{{name: "direct", build: func(b *builder) {
		src := b.blockRefs(Send, b.a.Counts, b.a.Displs, len(b.a.Dests))
		dst := b.blockRefs(Recv, b.a.RecvCounts, b.a.RecvDispls, len(b.a.Sources))
		b.neighbors(src, dst)
	}}}
}

// Exchange with neighbours: all messages at once, since a rank does not know the
// others' neighbours and so cannot know an order that would not make them wait for
// each other. For all sizes.
//
// Messages between the same two ranks match in the order of their lists. In a
// Cartesian topology with 1 or 2 ranks along a dimension, both neighbours are the
// same rank and what went in the negative direction arrives from the positive one:
// receives are started in that order.
//
// Cost: α + d mβ with d neighbours; one latency between sites.
func (b *builder) neighbors(src, dst []Ref) {
	for i, to := range b.a.Dests {
		if to >= 0 {
			b.send(to, src[i])
		}
	}
	for i := range b.a.Sources {
		if b.a.Paired {
			i ^= 1
		}
		if from := b.a.Sources[i]; from >= 0 {
			b.recv(from, dst[i])
		}
	}
}
