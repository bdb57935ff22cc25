package engine

import (
	"bytes"
	"testing"
)

var sizes = []int{0, 1, 31, 64, 65, 4000, 4001, 70_000, 3 << 20}

func testSendRecv(t *testing.T, newWorld maker) {
	for _, mode := range []Mode{Standard, Synchronous, Ready} {
		es := newWorld(t, 2)
		each(es, func(i int, e *Engine) {
			for k, n := range sizes {
				want := pattern(n, k)
				if i == 0 {
					if err := e.Send(&SendArgs{To: 1, Context: world, Tag: int32(k), Mode: mode, Data: want}); err != nil {
						t.Error(err)
					}
					continue
				}
				buf := make([]byte, n+3)
				st, err := e.Recv(&RecvArgs{From: 0, Context: world, Tag: int32(k), Buf: buf})
				if want := (Status{Source: 0, Tag: int32(k), Bytes: int64(n)}); err != nil || st != want {
					t.Errorf("%d bytes: got %+v, %v, want %+v", n, st, err, want)
				}
				if !bytes.Equal(buf[:n], want) {
					t.Errorf("%d bytes: other contents", n)
				}
			}
		})
	}
}
