package datatype

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// each runs f on random types.
func each(t *testing.T, seed uint64, f func(g generator, dt *Type, m model)) {
	t.Helper()
	n := 1000
	if testing.Short() {
		n = 300
	}
	for i := range n {
		g := generator{rand.New(rand.NewPCG(seed, uint64(i))), t}
		dt, m := g.draw(1 + g.IntN(4))
		f(g, dt, m)
		if t.Failed() {
			t.Fatalf("type %d: %v", i, dt)
		}
	}
}

func TestBoundsFollowTheStandard(t *testing.T) {
	each(t, 1, func(g generator, dt *Type, m model) {
		lb, ub := m.bounds()
		if dt.LB() != lb || dt.UB() != ub || dt.Extent() != ub-lb {
			t.Errorf("bounds [%d, %d), want [%d, %d)", dt.LB(), dt.UB(), lb, ub)
		}
		lo, hi := m.trueBounds()
		if tlb, text := dt.TrueExtent(); tlb != lo || text != hi-lo {
			t.Errorf("true extent %d from %d, want %d from %d", text, tlb, hi-lo, lo)
		}
		size := 0
		for _, e := range m.entries {
			size += e.kind.Size()
		}
		if dt.Size() != size || dt.Elems() != len(m.entries) {
			t.Errorf("%d bytes of %d elements, want %d of %d", dt.Size(), dt.Elems(), size, len(m.entries))
		}
	})
}

func TestRunsAreTheTypeMap(t *testing.T) {
	each(t, 2, func(g generator, dt *Type, m model) {
		var got []entry
		for r := range dt.Runs() {
			for i := range r.Count {
				got = append(got, entry{r.Off + i*r.Kind.Size(), r.Kind})
			}
		}
		if !slices.Equal(got, m.entries) {
			t.Errorf("type map %v, want %v", got, m.entries)
		}
	})
}

// arena is memory with random content that holds count items, and their origin.
func arena(g generator, m model, count int) (mem []byte, origin int) {
	lo, hi := m.times(count, m.extent()).trueBounds()
	origin = -lo
	if len(m.entries) == 0 || count == 0 {
		origin = 0
	}
	mem = make([]byte, hi-lo)
	for i := range mem {
		mem[i] = byte(g.Uint32())
	}
	return mem, origin
}

func TestPackIsTheNaivePack(t *testing.T) {
	each(t, 3, func(g generator, dt *Type, m model) {
		count := g.IntN(4)
		mem, origin := arena(g, m, count)
		want := m.pack(mem, origin, count)
		got := make([]byte, len(want)+3)
		n, err := dt.Pack(got, mem, origin, count)
		if err != nil || !bytes.Equal(got[:n], want) {
			t.Fatalf("%d items: %x, %v; want %x", count, got[:n], err, want)
		}
		var blocks []byte
		for off, size := range dt.Blocks(count) {
			blocks = append(blocks, mem[origin+off:origin+off+size]...)
		}
		if !bytes.Equal(blocks, want) {
			t.Errorf("blocks give %x, want %x", blocks, want)
		}
		if off, ok := dt.Contiguous(count); ok && len(want) > 0 && !bytes.Equal(mem[origin+off:origin+off+len(want)], want) {
			t.Errorf("not contiguous at %d", off)
		}
	})
}

func TestUnpackIsTheNaiveUnpack(t *testing.T) {
	each(t, 4, func(g generator, dt *Type, m model) {
		count := g.IntN(4)
		got, origin := arena(g, m, count)
		want := slices.Clone(got)
		packed := make([]byte, dt.Size()*count)
		for i := range packed {
			packed[i] = byte(g.Uint32())
		}
		m.unpack(want, packed, origin, count)
		if _, err := dt.Unpack(got, packed, origin, count); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d items: %x, want %x", count, got, want)
		}
	})
}

// TestFragments moves a message through fragments of random sizes, in both
// directions.
func TestFragments(t *testing.T) {
	each(t, 5, func(g generator, dt *Type, m model) {
		count := g.IntN(4)
		mem, origin := arena(g, m, count)
		want := m.pack(mem, origin, count)
		after := slices.Clone(mem)
		g.Shuffle(len(after), func(i, j int) { after[i], after[j] = after[j], after[i] })
		wantAfter := slices.Clone(after)
		m.unpack(wantAfter, want, origin, count)
		for pos := 0; pos < len(want); {
			buf := make([]byte, 1+g.IntN(len(want)))
			n, err := dt.PackAt(buf, mem, origin, count, pos)
			if err != nil || n != min(len(buf), len(want)-pos) || !bytes.Equal(buf[:n], want[pos:pos+n]) {
				t.Fatalf("pack at %d: %x, %v; want %x", pos, buf[:n], err, want[pos:])
			}
			if n, err := dt.UnpackAt(after, buf[:n], origin, count, pos); err != nil {
				t.Fatalf("unpack %d at %d: %v", n, pos, err)
			}
			pos += n
		}
		if !bytes.Equal(after, wantAfter) {
			t.Errorf("unpacked %x, want %x", after, wantAfter)
		}
	})
}

func TestSwap(t *testing.T) {
	each(t, 6, func(g generator, dt *Type, m model) {
		count := g.IntN(4)
		mem, origin := arena(g, m, count)
		got := m.pack(mem, origin, count)
		want := slices.Clone(got)
		m.swap(want, count)
		whole := slices.Clone(got)
		dt.Swap(whole)
		if !bytes.Equal(whole, want) {
			t.Fatalf("swapped to %x, want %x", whole, want)
		}
		// A shorter message is converted as far as it has whole words.
		cut := got[:g.IntN(len(got)+1)]
		dt.Swap(cut)
		_, words := dt.Elements(len(cut))
		if words && !bytes.Equal(cut, want[:len(cut)]) {
			t.Errorf("%d bytes swapped to %x, want %x", len(cut), cut, want[:len(cut)])
		}
	})
}

func TestExternalRoundTrip(t *testing.T) {
	each(t, 7, func(g generator, dt *Type, m model) {
		count := g.IntN(4)
		mem, origin := arena(g, m, count)
		want := m.pack(mem, origin, count)
		if !hostBig {
			m.swap(want, count)
		}
		got := make([]byte, len(want))
		if _, err := dt.PackExternal(got, mem, origin, count); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("external %x, %v; want %x", got, err, want)
		}
		back, wantBack := make([]byte, len(mem)), make([]byte, len(mem))
		if _, err := dt.UnpackExternal(back, got, origin, count); err != nil {
			t.Fatal(err)
		}
		m.unpack(wantBack, m.pack(mem, origin, count), origin, count)
		if !bytes.Equal(back, wantBack) {
			t.Errorf("back %x, want %x", back, wantBack)
		}
	})
}

func TestSignature(t *testing.T) {
	seen := map[Signature]string{}
	each(t, 8, func(g generator, dt *Type, m model) {
		count := 1 + g.IntN(3)
		var seq []byte
		for range count {
			for _, e := range m.entries {
				seq = append(seq, byte(e.kind))
			}
		}
		s := dt.Signature(count)
		if was, ok := seen[s]; ok && was != string(seq) {
			t.Errorf("%q and %q have the signature %v", was, seq, s)
		}
		seen[s] = string(seq)
		var runs []byte
		last := Invalid
		for k, n := range dt.SignatureRuns() {
			if k == last || n < 1 {
				t.Errorf("%d × %v after %v", n, k, last)
			}
			runs = append(runs, bytes.Repeat([]byte{byte(k)}, n)...)
			last = k
		}
		if string(runs) != string(seq[:len(seq)/count]) {
			t.Errorf("runs %x, want %x", runs, seq)
		}
	})
	distinct := map[string]bool{}
	for _, seq := range seen {
		distinct[seq] = true
	}
	if len(distinct) != len(seen) {
		t.Errorf("%d signatures of %d sequences", len(seen), len(distinct))
	}
}

func TestElements(t *testing.T) {
	each(t, 9, func(g generator, dt *Type, m model) {
		count := 1 + g.IntN(3)
		ends := map[int]int{0: 0} // bytes to elements
		pos, n := 0, 0
		for range count {
			for _, e := range m.entries {
				pos, n = pos+e.kind.Size(), n+1
				ends[pos] = n
			}
		}
		for b := range pos + 1 {
			want, whole := ends[b]
			if got, ok := dt.Elements(b); ok != whole || ok && got != want {
				t.Fatalf("%d bytes: %d, %t; want %d, %t", b, got, ok, want, whole)
			}
		}
	})
}

// TestTravel encodes a type and decodes it: the copy has the same map and
// bounds, and encodes to the same bytes.
func TestTravel(t *testing.T) {
	each(t, 10, func(g generator, dt *Type, m model) {
		enc, err := dt.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(enc)
		if err != nil {
			t.Fatal(err)
		}
		if got.LB() != dt.LB() || got.UB() != dt.UB() || got.Signature(1) != dt.Signature(1) {
			t.Errorf("[%d, %d) %v, want [%d, %d) %v", got.LB(), got.UB(), got.Signature(1), dt.LB(), dt.UB(), dt.Signature(1))
		}
		if a, b := slices.Collect(got.Runs()), slices.Collect(dt.Runs()); !slices.Equal(a, b) {
			t.Errorf("runs %v, want %v", a, b)
		}
		if again, err := got.AppendBinary(nil); err != nil || !bytes.Equal(again, enc) {
			t.Errorf("again %x, %v; was %x", again, err, enc)
		}
	})
}

// TestContentsRebuild makes a type again from what Contents says.
func TestContentsRebuild(t *testing.T) {
	each(t, 11, func(g generator, dt *Type, m model) {
		got := rebuild(t, dt)
		if got.LB() != dt.LB() || got.UB() != dt.UB() || !slices.Equal(slices.Collect(got.Runs()), slices.Collect(dt.Runs())) {
			t.Errorf("rebuilt as %v", got)
		}
		if !reflect.DeepEqual(got.Contents(), dt.Contents()) {
			t.Errorf("contents %v, want %v", got.Contents(), dt.Contents())
		}
	})
}

func rebuild(t *testing.T, dt *Type) *Type {
	t.Helper()
	c := dt.Contents()
	if e, ni, na, nt := dt.Envelope(); e != c.Combiner || ni != len(c.Ints) || na != len(c.Addrs) || nt != len(c.Types) {
		t.Errorf("envelope %v %d %d %d of %v", e, ni, na, nt, c)
	}
	i, a := c.Ints, c.Addrs
	g := generator{t: t}
	switch c.Combiner {
	case DupOf:
		return g.must(Dup(c.Types[0]))
	case ContiguousOf:
		return g.must(Contiguous(i[0], c.Types[0]))
	case VectorOf:
		return g.must(Vector(i[0], i[1], i[2], c.Types[0]))
	case HvectorOf:
		return g.must(Hvector(i[0], i[1], a[0], c.Types[0]))
	case IndexedOf:
		return g.must(Indexed(i[1:1+i[0]], i[1+i[0]:], c.Types[0]))
	case HindexedOf:
		return g.must(Hindexed(i[1:], a, c.Types[0]))
	case IndexedBlockOf:
		return g.must(IndexedBlock(i[1], i[2:], c.Types[0]))
	case HindexedBlockOf:
		return g.must(HindexedBlock(i[1], a, c.Types[0]))
	case StructOf:
		return g.must(Struct(i[1:], a, c.Types))
	case SubarrayOf:
		n := i[0]
		return g.must(Subarray(i[1:1+n], i[1+n:1+2*n], i[1+2*n:1+3*n], Order(i[1+3*n]), c.Types[0]))
	case DarrayOf:
		n := i[2]
		i = i[3:]
		dists := make([]Dist, n)
		for d := range dists {
			dists[d] = Dist(i[n+d])
		}
		return g.must(Darray(c.Ints[0], c.Ints[1], i[:n], dists, i[2*n:3*n], i[3*n:4*n], Order(i[4*n]), c.Types[0]))
	case ResizedOf:
		return g.must(Resized(c.Types[0], a[0], a[1]))
	}
	return dt
}
