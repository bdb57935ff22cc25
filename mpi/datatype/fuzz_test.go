package datatype

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// fuzzed draws a type from a seed, with memory around it that its data may not
// leave.
func fuzzed(t *testing.T, seed uint64) (dt *Type, m model) {
	g := generator{rand.New(rand.NewPCG(seed, 0)), t}
	return g.draw(3)
}

// seeds are the corpus of the targets that take a type and a message.
func seeds(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, 8, 2, 0)
		f.Add(seed, bytes.Repeat([]byte{0xff}, 200), 40, 3, 5)
		f.Add(seed, []byte{}, -1, -1, 1)
	}
}

// FuzzUnpack unpacks any message at any place: it is an error, or it is what the
// naive type map does.
func FuzzUnpack(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, seed uint64, msg []byte, origin, count, pos int) {
		dt, m := fuzzed(t, seed)
		mem := make([]byte, 256)
		before := slices.Clone(mem)
		n, err := dt.UnpackAt(mem, msg, origin, count, pos)
		if err != nil {
			if n != 0 || !bytes.Equal(mem, before) {
				t.Errorf("%d bytes and %v", n, err)
			}
			return
		}
		if n != len(msg) {
			t.Errorf("took %d bytes of %d", n, len(msg))
		}
		if pos == 0 && n == dt.Size()*count && n > 0 {
			m.unpack(before, msg, origin, count)
			if !bytes.Equal(mem, before) {
				t.Errorf("%v: %x, want %x", dt, mem, before)
			}
		}
		again := make([]byte, len(msg))
		if k, err := dt.PackAt(again, mem, origin, count, pos); err != nil || k != n {
			t.Errorf("packs %d bytes, %v; unpacked %d", k, err, n)
		}
		dt.Swap(msg)
	})
}

// FuzzUnpackExternal is FuzzUnpack for the portable form.
func FuzzUnpackExternal(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, seed uint64, msg []byte, origin, count, pos int) {
		dt, m := fuzzed(t, seed)
		mem, want, sent := make([]byte, 256), make([]byte, 256), slices.Clone(msg)
		n, err := dt.UnpackExternal(mem, msg, origin, count)
		if !bytes.Equal(msg, sent) {
			t.Error("the message has changed")
		}
		if err == nil && n > 0 {
			sent = sent[:n]
			if !hostBig {
				m.swap(sent, count)
			}
			m.unpack(want, sent, origin, count)
		}
		if !bytes.Equal(mem, want) {
			t.Errorf("%v: %x, want %x", dt, mem, want)
		}
	})
}

// FuzzDecode reads any description: what it accepts is a type that can be used
// and sent on.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(32) {
		g := generator{rand.New(rand.NewPCG(seed, 1)), f}
		dt, _ := g.draw(4)
		if enc, err := dt.AppendBinary(nil); err == nil {
			f.Add(enc)
		}
	}
	if dt, err := Of(reflect.TypeFor[particle]()); err == nil {
		enc, _ := dt.AppendBinary(nil)
		f.Add(enc)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dt, err := Decode(b)
		if err != nil {
			return
		}
		mem, msg := make([]byte, 300), make([]byte, 300)
		for _, count := range []int{0, 1, 3} {
			_, _ = dt.Pack(msg, mem, 100, count)
			_, _ = dt.UnpackAt(mem, msg[:7], 100, count, 2)
			_, _ = dt.UnpackExternal(mem, msg, 100, count)
		}
		dt.Swap(msg)
		_, _ = dt.Elements(150)
		enc, err := dt.AppendBinary(nil)
		if err != nil {
			return // deeper than a type that travels may be
		}
		again, err := Decode(enc)
		if err != nil || again.Signature(1) != dt.Signature(1) || again.Extent() != dt.Extent() || again.LB() != dt.LB() {
			t.Errorf("%v becomes %v, %v", dt, again, err)
		}
	})
}
