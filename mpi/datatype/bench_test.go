package datatype

import (
	"fmt"
	"testing"
)

// BenchmarkPack compares packing with a copy of as many bytes.
func BenchmarkPack(b *testing.B) {
	m := must(b)
	f64 := Basic(Float64)
	mem, msg := make([]byte, 8<<20), make([]byte, 1<<20)
	for _, bb := range []struct {
		name string
		t    *Type
	}{
		{"contiguous", m(Contiguous(1<<17, f64))},
		{"vector of 1", m(Vector(1<<17, 1, 2, f64))},
		{"vector of 1, far", m(Vector(1<<15, 1, 32, f64))},
		{"vector of 3", m(Vector(1<<15, 3, 4, f64))},
		{"vector of 16", m(Vector(1<<13, 16, 20, f64))},
		{"vector of 512", m(Vector(1<<8, 512, 1024, f64))},
		{"float32 vector of 1", m(Vector(1<<17, 1, 2, Basic(Float32)))},
		{"face of a cube", m(Subarray([]int{64, 64, 64}, []int{64, 64, 1}, []int{0, 0, 0}, C, f64))},
		{"inner cube", m(Subarray([]int{64, 64, 64}, []int{48, 48, 48}, []int{8, 8, 8}, C, f64))},
		{"struct", m(Contiguous(1<<14, m(Struct([]int{1, 3, 1}, []int{0, 8, 36}, []*Type{Basic(Int32), f64, Basic(Int16)}))))},
	} {
		n := bb.t.Size()
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, err := bb.t.Pack(msg, mem, 0, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bb.name+"/unpack", func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, err := bb.t.Unpack(mem, msg, 0, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(1 << 20)
		for b.Loop() {
			copy(msg, mem)
		}
	})
}

func BenchmarkSwap(b *testing.B) {
	msg := make([]byte, 64<<10)
	for _, k := range []Kind{Int16, Int32, Int64} {
		b.Run(k.String(), func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				Basic(k).Swap(msg)
			}
		})
	}
}

func BenchmarkReduce(b *testing.B) {
	in, inout := make([]byte, 64<<10), make([]byte, 64<<10)
	for _, o := range []OpKind{Sum, Prod, Min, Land, Band, MinLoc} {
		for _, k := range []Kind{Int8, Int16, Int32, Int64, Float32, Float64, Complex128} {
			kernel, ok := Reduce(o, k)
			if !ok {
				continue
			}
			b.Run(fmt.Sprintf("%v/%v", o, k), func(b *testing.B) {
				b.SetBytes(int64(len(in)))
				for b.Loop() {
					kernel(in, inout)
				}
			})
		}
	}
}
