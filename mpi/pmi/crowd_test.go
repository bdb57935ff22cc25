package pmi

import (
	"context"
	"net"
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
	for range 2*2 + 64 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for srv.Connected() < 2*2+64 {
		time.Sleep(time.Millisecond)
	}
	env := map[string]string{"PMI_PORT": ln.Addr().String(), "PMI_ID": "0", EnvKey: "secret"}
	c, err := Dial(t.Context(), func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
