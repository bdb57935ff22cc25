package hub

import (
	"encoding/binary"
	"errors"
)

// errDamaged says that a file is not what the embedded engine wrote.
var errDamaged = errors.New("its pages are not those of a store")

// pages are a bbolt file's, whose version 2 looks like this, with numbers in the
// machine's order and positions counted from the element that holds them:
//
//	page    id 8, flags 2, count 2, overflow 4 (pages that follow as part of it), elements
//	meta    16 bytes, root page 8, sequence 8, freelist page 8, …
//	branch  position 4, key length 4, child's page 8
//	leaf    flags 4, position 4, key length 4, value length 4
//	bucket  as a leaf's value: root page 8, sequence 8; for root 0 a page follows here
//
// bbolt believes all of it, and on a damaged file panics, reads where nothing
// is mapped, or never ends, some of that in goroutines of its own, where nobody
// can stop it. So the structure is checked before bbolt's own check of the rest.
type pages struct {
	file []byte // whole pages
	size int    // of one
	seen []bool // which belong to something
}

const (
	pageHeader = 16
	element    = 16
	flagBranch = 0x01
	flagLeaf   = 0x02
	flagFree   = 0x10
	flagBucket = 0x01 // of a leaf's element
	noFreelist = ^uint64(0)
)

// checkPages checks the pages that transaction txid sees.
func checkPages(file []byte, size int, txid uint64) error {
	if size < 2*pageHeader+64 || len(file) < 4*size || len(file)%size != 0 {
		return errDamaged
	}
	p := &pages{file, size, make([]bool, len(file)/size)}
	meta := file[int(txid%2)*size+pageHeader+16:]
	if free := u64(meta[16:]); free != noFreelist {
		if err := p.free(free); err != nil {
			return err
		}
	}
	return p.tree(u64(meta))
}

// free checks the list of free pages: ids of 8 bytes, as many as the page says,
// or, if that is the most it can say, the first of them.
func (p *pages) free(id uint64) error {
	b, err := p.take(id)
	if err != nil || u16(b[8:]) != flagFree {
		return errDamaged
	}
	ids, n := b[pageHeader:], uint64(u16(b[10:]))
	if n == 0xffff {
		ids, n = ids[8:], u64(ids)
	}
	if n > uint64(len(ids)/8) {
		return errDamaged
	}
	for ; n > 0; n, ids = n-1, ids[8:] {
		id := u64(ids)
		if id < 2 || id >= uint64(len(p.seen)) || p.seen[id] {
			return errDamaged
		}
		p.seen[id] = true
	}
	return nil
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) int    { return int(binary.NativeEndian.Uint32(b)) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// take returns a page with its overflow, to whoever asks first.
func (p *pages) take(id uint64) ([]byte, error) {
	if id < 2 || id >= uint64(len(p.seen)) {
		return nil, errDamaged
	}
	b := p.file[int(id)*p.size:]
	n := 1 + u32(b[12:])
	if u64(b) != id || n > len(b)/p.size {
		return nil, errDamaged
	}
	for i := range n {
		if p.seen[int(id)+i] {
			return nil, errDamaged
		}
		p.seen[int(id)+i] = true
	}
	return b[:n*p.size], nil
}

// tree checks a page and all below it.
func (p *pages) tree(id uint64) error {
	b, err := p.take(id)
	if err != nil {
		return err
	}
	return p.page(b)
}

// page checks a branch or leaf, which may lie inside another, and all below it.
func (p *pages) page(b []byte) error {
	if len(b) < pageHeader {
		return errDamaged
	}
	flags, count := u16(b[8:]), int(u16(b[10:]))
	if flags != flagBranch && flags != flagLeaf || flags == flagBranch && count == 0 || pageHeader+count*element > len(b) {
		return errDamaged
	}
	for i := range count {
		e := b[pageHeader+i*element:]
		var err error
		if flags == flagBranch {
			if pos, key := u32(e), u32(e[4:]); key == 0 || pos+key > len(e) {
				return errDamaged
			}
			err = p.tree(u64(e[8:]))
		} else {
			err = p.leaf(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaf checks the element that e begins with.
func (p *pages) leaf(e []byte) error {
	pos, key, value := u32(e[4:]), u32(e[8:]), u32(e[12:])
	if key == 0 || pos+key+value > len(e) {
		return errDamaged
	}
	if u32(e)&flagBucket == 0 {
		return nil
	}
	v := e[pos+key:][:value]
	if len(v) < 16 {
		return errDamaged
	}
	if root := u64(v); root != 0 {
		return p.tree(root)
	}
	if len(v) < 16+pageHeader || u16(v[16+8:]) != flagLeaf {
		return errDamaged
	}
	return p.page(v[16:])
}
