package engine

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKilledSocket has the system end a connection of plain sockets, from either side
// and at several moments, as ss -K does: the message goes on over the other.
func TestKilledSocket(t *testing.T) {
	const n = 8 << 20
	for _, side := range []int{0, 1} {
		for _, after := range []int{1, 1 << 20, 4 << 20} {
			es := processes(func(c *Config) { c.Links = 2 })(t, 2)
			buf := make([]byte, n)
			in := irecv(t, es[1], 0, 1, buf)
			out := isend(t, es[0], 1, 1, pattern(n, after))
			for killed := false; !killed; {
				es[0].Poll()
				es[1].Poll()
				es[1].Do(func(*Op) {
					r := es[1].lookup(in)
					killed = r.state == complete || r.moved >= after
				})
			}
			es[side].Do(func(*Op) {
				if err := unix.Shutdown(es[side].peers[1-side].conns[1].wire.(*tcpWire).fd, unix.SHUT_RDWR); err != nil {
					t.Errorf("shutdown: %v", err)
				}
			})
			if st := wait(t, es[1], in); st.Bytes != n || !bytes.Equal(buf, pattern(n, after)) {
				t.Fatalf("side %d, after %d bytes: other contents", side, after)
			}
			wait(t, es[0], out)
			send(t, es[1], 0, 2, nil)
			recv(t, es[0], 1, 2, 0)
			settled(t, es)
			for i := range es {
				for lostLinks(es[i], Proc(1-i)) != 1 {
					es[0].Poll()
					es[1].Poll()
				}
			}
			closeAll(t, es)
		}
	}
}
