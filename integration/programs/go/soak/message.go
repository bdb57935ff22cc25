package main

import (
	"encoding/binary"
	"fmt"
)

// maxSize is the longest message in bytes, tags how many tags there are.
const (
	maxSize = 256 << 10
	tags    = 8
)

// message is one of all: its place in the order of those from one rank to another
// with one tag decides its size and contents, so that the receiver knows both, and
// one that is lost, doubled, overtaken or changed is seen.
type message struct{ from, to, tag, seq int }

// key is a number of the message's own.
func (m message) key(seed uint64) uint64 {
	k := seed
	for _, v := range [...]int{m.from, m.to, m.tag, m.seq} {
		k = mix(k ^ uint64(v))
	}
	return k
}

// mix is a step of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators").
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sizeOf is the length of the message of a key: seven of eight are short, one of
// 256 is as long as may be.
func sizeOf(key uint64) int {
	n := int(key >> 32)
	switch c := key & 255; {
	case c == 0:
		return n % (maxSize + 1)
	case c < 32:
		return n % 4096
	}
	return n % 128
}

// fill writes the message's bytes.
func fill(b []byte, key uint64) {
	for ; len(b) >= 8; b = b[8:] {
		key = next(key)
		binary.LittleEndian.PutUint64(b, key)
	}
	key = next(key)
	for i := range b {
		b[i] = byte(key >> (8 * i))
	}
}

// next is a step of Knuth's MMIX generator.
func next(key uint64) uint64 { return key*6364136223846793005 + 1442695040888963407 }

// check compares what has come with what fill writes.
func (m message) check(b []byte, seed uint64) error {
	key := m.key(seed)
	if want := sizeOf(key); len(b) != want {
		return fmt.Errorf("message %d from %d with tag %d has %d bytes, want %d", m.seq, m.from, m.tag, len(b), want)
	}
	all, good := len(b), true
	for ; len(b) >= 8; b = b[8:] {
		key = next(key)
		good = good && binary.LittleEndian.Uint64(b) == key
	}
	key = next(key)
	for i, v := range b {
		good = good && v == byte(key>>(8*i))
	}
	if !good {
		return fmt.Errorf("message %d from %d with tag %d, of %d bytes, is not what was sent", m.seq, m.from, m.tag, all)
	}
	return nil
}
