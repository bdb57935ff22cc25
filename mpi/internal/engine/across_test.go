//go:build linux

package engine

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCopied sends large messages through the rings, as where processes may not
// read each other's memory.
func TestCopied(t *testing.T) {
	es := processes(func(c *Config) { c.SharedMemory = true })(t, 2)
	send(t, es[0], 1, 1, nil)
	recv(t, es[1], 0, 1, 0)
	for i, e := range es {
		e.Do(func(*Op) { e.peers[1-i].conns[0].wire.(*sharedWire).reads = false })
	}
	each(es, func(i int, e *Engine) {
		for k, n := range sizes {
			out := isend(t, e, Proc(1-i), 1, pattern(n, k))
			if got, _ := recv(t, e, Proc(1-i), 1, n); !bytes.Equal(got, pattern(n, k)) {
				t.Errorf("%d bytes: other contents", n)
			}
			wait(t, e, out)
		}
	})
}

// TestSeals refuses memory whose size its maker can still change.
func TestSeals(t *testing.T) {
	fd, mem, err := newMemory("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := mapMemory(fd, 8192, true); err == nil {
		t.Errorf("mapped %d bytes of 4096", len(got))
	}
	got, err := mapMemory(fd, 4096, true)
	if err != nil {
		t.Fatal(err)
	}
	mem[7] = 9
	if got[7] != 9 {
		t.Error("not the same memory")
	}
	for _, m := range [][]byte{mem, got} {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

// words is a Swapper of 32-bit words.
type words struct{ swapped int }

func (w *words) Swap(b []byte) {
	w.swapped++
	for ; len(b) >= 4; b = b[4:] {
		binary.BigEndian.PutUint32(b, binary.LittleEndian.Uint32(b))
	}
}

// TestOtherOrder has one side claim the other byte order.
func TestOtherOrder(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			es := k.make(t, 2, func(c *Config) {
				if c.Self == 0 {
					c.Arch = NativeArch().OtherOrder()
				}
			})
			for _, n := range []int{4, 400, 400_000} {
				data, want := pattern(n, 0), pattern(n, 0)
				(&words{}).Swap(want)
				for _, late := range []bool{false, true} {
					w, buf := &words{}, make([]byte, n)
					a := RecvArgs{From: 0, Context: world, Tag: 1, Buf: buf, Swap: w}
					var out ID
					if late {
						out = isend(t, es[0], 1, 1, data)
						if _, err := es[1].Probe(0, world, 1); err != nil {
							t.Fatal(err)
						}
					}
					in, err := es[1].Irecv(&a)
					if err != nil {
						t.Fatal(err)
					}
					if !late {
						out = isend(t, es[0], 1, 1, data)
					}
					wait(t, es[1], in)
					wait(t, es[0], out)
					if w.swapped != 1 || !bytes.Equal(buf, want) {
						t.Errorf("%d bytes, late %v: swapped %d times", n, late, w.swapped)
					}
				}
			}
		})
	}
}

// TestCrowd passes a message around among more engines than there are processors.
func TestCrowd(t *testing.T) {
	const n, laps = 8, 30
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			es := k.make(t, n)
			each(es, func(i int, e *Engine) {
				next, last := Proc((i+1)%n), Proc((i+n-1)%n)
				for lap := range laps {
					if i == 0 {
						send(t, e, next, 1, []byte{byte(lap)})
					}
					got, _ := recv(t, e, last, 1, 1)
					if got[0] != byte(lap) {
						t.Fatalf("lap %d: got %d", lap, got[0])
					}
					if i != 0 {
						send(t, e, next, 1, got)
					}
				}
			})
		})
	}
}
