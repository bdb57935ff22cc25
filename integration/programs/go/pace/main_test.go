package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBucket(t *testing.T) {
	start := time.Unix(1000, 0)
	b := &bucket{rate: 1000, depth: 300, last: start}
	if b.take(1) {
		t.Error("an empty bucket gives tokens")
	}
	if got := b.until(100); got != 100*time.Millisecond {
		t.Errorf("100 tokens take %v", got)
	}
	b.fill(start.Add(100 * time.Millisecond))
	if b.take(101) || !b.take(100) || b.take(1) {
		t.Errorf("after 100 ms at 1000 a second there are not 100 tokens: %+v", b)
	}
	b.fill(start.Add(time.Hour))
	if b.have != 300 || b.until(200) != 0 {
		t.Errorf("it holds more than its depth: %+v", b)
	}
}

// TestWays: each way sends datagrams of the size asked for, ends in time, and leaves
// nothing running.
func TestWays(t *testing.T) {
	for way := range ways() {
		t.Run(way, func(t *testing.T) {
			sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			args := []string{"-way", way, "-rate", "20Mb/s", "-size", "1008", "-seconds", "0.1", sink.LocalAddr().String()}
			if err := run(args, io.Discard); err != nil && !strings.Contains(err.Error(), "send buffer: operation not permitted") {
				t.Fatal(err)
			} else if err != nil {
				t.Skip(err) // without privilege
			}
			b := make([]byte, 2000)
			if err := sink.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if n, err := sink.Read(b); err != nil || n != 1008 {
				t.Errorf("a datagram of %d bytes, %v", n, err)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-way best 127.0.0.1:9", "-way best is none of"},
		{"-rate much 127.0.0.1:9", "-rate: "},
		{"-size 5 127.0.0.1:9", "-size 5 is not"},
		{"", "one HOST:PORT"},
		{"nowhere", "missing port"},
	} {
		if err := run(strings.Fields(tt.args), io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}
