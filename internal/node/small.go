package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// randomULA makes a unique local /64 (RFC 4193 §3.2: 40 random bits).
func randomULA() (netip.Prefix, error) {
	a := [16]byte{0: 0xfd}
	if _, err := rand.Read(a[1:6]); err != nil {
		return netip.Prefix{}, fmt.Errorf("node: random bits: %w", err)
	}
	return netip.PrefixFrom(netip.AddrFrom16(a), 64), nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// once closes c unless somebody else has done so already.
func once(c io.Closer) io.Closer {
	return closeFunc(func() error {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
}
