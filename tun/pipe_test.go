package tun

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	wgtun "golang.zx2c4.com/wireguard/tun"
)

func TestPipe(t *testing.T) {
	p := NewPipe(1280)
	if mtu, _ := p.MTU(); mtu != 1280 {
		t.Errorf("MTU: got %d, want 1280", mtu)
	}
	if e := <-p.Events(); e != wgtun.EventUp {
		t.Errorf("first event: got %v, want up", e)
	}
	for _, s := range []string{"one", "two", "three"} {
		if !p.Send([]byte(s)) {
			t.Errorf("%s was dropped", s)
		}
	}
	const offset = 4
	bufs, sizes := [][]byte{make([]byte, 64), make([]byte, 64)}, make([]int, 2)
	for _, want := range [][]string{{"one", "two"}, {"three"}} {
		n, err := p.Read(bufs, sizes, offset)
		if err != nil || n != len(want) {
			t.Fatalf("read %d, %v, want %d", n, err, len(want))
		}
		for i := range n {
			if got := string(bufs[i][offset : offset+sizes[i]]); got != want[i] {
				t.Errorf("got %q, want %q", got, want[i])
			}
		}
	}
	if n, err := p.Write([][]byte{[]byte("....in"), []byte("....out")}, offset); n != 2 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	ctx := t.Context()
	for _, want := range []string{"in", "out"} {
		if got, err := p.Recv(ctx); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestPipeBounds(t *testing.T) {
	p := NewPipe(0)
	for range pipeQueue {
		p.Send([]byte{1})
	}
	if p.Send([]byte{1}) || p.Dropped() != 1 {
		t.Errorf("a full queue took more; dropped %d", p.Dropped())
	}
	if _, err := p.Read([][]byte{nil}, make([]int, 1), 0); err == nil {
		t.Error("a packet fitted nothing")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Recv: %v", err)
	}
	go p.Close() // releases both
	if _, err := p.Recv(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Recv after Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Write([][]byte{{1}}, 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
	if p.Send([]byte{1}) {
		t.Error("Send after Close worked")
	}
}
