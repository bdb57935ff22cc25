package datatype

import "fmt"

// PackSize is the bytes that count items take in a message.
func (t *Type) PackSize(count int) (int, error) {
	if count < 0 {
		return 0, fmt.Errorf("datatype: pack size: %w", ErrCount)
	}
	var c calc
	n := c.mul(count, t.Size())
	return n, c.err()
}

// Pack gathers count items from src into dst and returns how many bytes of dst
// it wrote, PackSize(count). Displacement 0 of the first item is src[origin];
// lower bounds and displacements may be negative, so origin need not be 0. Where
// an item would leave src the error is ErrBuffer, where dst is too small
// ErrShort, and nothing is written.
func (t *Type) Pack(dst, src []byte, origin, count int) (int, error) {
	n, err := t.ready("pack", src, origin, count)
	if err != nil {
		return 0, err
	}
	if len(dst) < n {
		return 0, fmt.Errorf("datatype: pack: %d bytes into %d: %w", n, len(dst), ErrShort)
	}
	t.move(gather, dst[:n], src, origin, 0)
	return n, nil
}

// Unpack scatters the first PackSize(count) bytes of src to count items in dst
// and returns that number. Bounds are Pack's, with dst for the memory and src
// for the message. Bools become 0 or 1 whatever the message says. Bytes between
// the data, such as padding, keep their value.
func (t *Type) Unpack(dst, src []byte, origin, count int) (int, error) {
	n, err := t.ready("unpack", dst, origin, count)
	if err != nil {
		return 0, err
	}
	if len(src) < n {
		return 0, fmt.Errorf("datatype: unpack: %d bytes of %d: %w", len(src), n, ErrShort)
	}
	t.move(scatter, src[:n], dst, origin, 0)
	return n, nil
}

// PackAt is Pack for one fragment: it writes the bytes from packed position pos
// on that fit in dst, and returns how many those are: len(dst), or what is left
// of the message.
func (t *Type) PackAt(dst, src []byte, origin, count, pos int) (int, error) {
	n, err := t.fragment("pack", dst, src, origin, count, pos)
	if n > 0 {
		t.move(gather, dst[:n], src, origin, pos)
	}
	return n, err
}

// UnpackAt is Unpack for one fragment: src holds bytes of the message from
// packed position pos on, at most what is left of it (else ErrShort). With pos 0
// it takes a message of fewer items than count, or of a part of one.
func (t *Type) UnpackAt(dst, src []byte, origin, count, pos int) (int, error) {
	n, err := t.fragment("unpack", src, dst, origin, count, pos)
	if err == nil && n < len(src) {
		n, err = 0, fmt.Errorf("datatype: unpack: %d bytes at %d of %d: %w", len(src), pos, pos+n, ErrShort)
	}
	if n > 0 {
		t.move(scatter, src[:n], dst, origin, pos)
	}
	return n, err
}

// fragment is how much of packed a message of count items has from pos on.
func (t *Type) fragment(op string, packed, mem []byte, origin, count, pos int) (int, error) {
	n, err := t.ready(op, mem, origin, count)
	if err != nil {
		return 0, err
	}
	if pos < 0 || pos > n {
		return 0, fmt.Errorf("datatype: %s: position %d of %d: %w", op, pos, n, ErrArg)
	}
	return min(len(packed), n-pos), nil
}

// ready checks that count items from origin on lie inside mem, and returns their
// packed size.
func (t *Type) ready(op string, mem []byte, origin, count int) (int, error) {
	n, err := t.PackSize(count)
	if err != nil {
		return 0, err
	}
	lo, hi, err := t.Span(count)
	if err != nil {
		return 0, fmt.Errorf("datatype: %s: %w", op, err)
	}
	if n == 0 {
		return 0, nil
	}
	// Neither comparison can overflow: lo ≤ hi, and both sides of each are in range once origin is.
	if origin < 0 && lo < 0 || origin > len(mem) && hi > 0 || origin < -lo || hi > len(mem)-origin {
		return 0, fmt.Errorf("datatype: %s: items from byte %d to %d of origin %d in %d bytes: %w", op, lo, hi, origin, len(mem), ErrBuffer)
	}
	return n, nil
}

// move copies the packed bytes that stand at pos of a message of items of t. It
// trusts its arguments.
func (t *Type) move(way way, packed, mem []byte, origin, pos int) {
	if len(packed) == 0 {
		return
	}
	n, at := t.lay.n, origin+t.lay.at
	if n.dense && t.Extent() == n.size && way.whole(n) {
		way.copy(n, packed, mem[at+pos:at+pos+len(packed)])
		return
	}
	way.loop(packed, mem, at, t.Extent(), n, pos)
}
