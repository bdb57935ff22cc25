package engine

// slab hands out records by number. Records do not move; those given back are
// used again, so that in the steady state nothing is allocated.
type slab[T any] struct {
	chunks []*[slabChunk]T
	free   []uint32
	limit  int // of records
}

const slabChunk = 128

// get returns a record that is not in use and its number; nil at the limit.
func (s *slab[T]) get() (*T, uint32) {
	if len(s.free) == 0 && !s.grow() {
		return nil, 0
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return s.at(i), i
}

func (s *slab[T]) grow() bool {
	first := len(s.chunks) * slabChunk
	if first >= s.limit {
		return false
	}
	s.chunks = append(s.chunks, new([slabChunk]T))
	if cap(s.free) < first+slabChunk { // room for all, so that put never allocates
		s.free = make([]uint32, 0, 2*(first+slabChunk))
	}
	for i := slabChunk - 1; i >= 0; i-- {
		s.free = append(s.free, uint32(first+i))
	}
	return true
}

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/slabChunk][i%slabChunk] }

func (s *slab[T]) has(i uint32) bool { return int(i) < len(s.chunks)*slabChunk }

func (s *slab[T]) put(i uint32) { s.free = append(s.free, i) }

// used is how many records are in use.
func (s *slab[T]) used() int { return len(s.chunks)*slabChunk - len(s.free) }

// buffers keeps memory of messages that wait for a receive, by power of two,
// for the next ones. A class keeps at most what makes keepBytes.
type buffers struct {
	free [bufferClasses][][]byte
}

const (
	bufferMin     = 6  // 64 bytes
	bufferClasses = 15 // up to 1 MiB
	keepBytes     = 1 << 20
)

func bufferClass(n int) int {
	c := 0
	for n > 1<<(bufferMin+c) {
		c++
	}
	return c
}

// get returns memory for n bytes, with undefined contents.
func (b *buffers) get(n int) []byte {
	if n == 0 {
		return nil
	}
	c := bufferClass(n)
	if c >= bufferClasses {
		return make([]byte, n)
	}
	l := b.free[c]
	if len(l) == 0 {
		return make([]byte, n, 1<<(bufferMin+c))
	}
	m := l[len(l)-1]
	l[len(l)-1] = nil
	b.free[c] = l[:len(l)-1]
	return m[:n]
}

// put takes memory back that get returned.
func (b *buffers) put(m []byte) {
	if cap(m) == 0 {
		return
	}
	c := bufferClass(cap(m))
	if c >= bufferClasses || cap(m) != 1<<(bufferMin+c) || len(b.free[c]) >= max(keepBytes>>(bufferMin+c), 2) {
		return
	}
	b.free[c] = append(b.free[c], m[:0])
}
