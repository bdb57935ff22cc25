package pmi

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// TestStrangersDoNotCrowd: who shows no key keeps no rank out.
func TestStrangersDoNotCrowd(t *testing.T) {
	srv, err := NewServer(Config{Size: 2, Key: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, ln) }()
	defer func() { cancel(); <-done }()
	const most = 2*2 + 64
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range most {
		dial()
	}
	for srv.Connected() < most {
		time.Sleep(time.Millisecond)
	}
	late := dial()
	for range most - 1 { // each puts an older one out
		gone := dial()
		gone.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		gone.Read(make([]byte, 1)) // the server has seen it by then
	}
	late.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection was put out before older ones: %v", err)
	}
	env := map[string]string{"PMI_PORT": ln.Addr().String(), "PMI_ID": "0", EnvKey: "secret"}
	c, err := Dial(t.Context(), func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
