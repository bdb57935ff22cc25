package deaf

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

func TestAddr(t *testing.T) {
	at := Addr(t, "tcp")
	c, err := net.Dial("tcp", at)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling %s: %v", at, err)
	}
	if err == nil {
		c.Close()
	}

	u, err := net.Dial("udp", Addr(t, "udp"))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after a datagram: %v", err)
	}
}

// TestHeld: the ports stay taken.
func TestHeld(t *testing.T) {
	for network, listen := range map[string]func(addr string) error{
		"tcp": func(addr string) error {
			l, err := net.Listen("tcp4", addr)
			if err == nil {
				l.Close()
			}
			return err
		},
		"udp": func(addr string) error {
			c, err := net.ListenPacket("udp4", addr)
			if err == nil {
				c.Close()
			}
			return err
		},
	} {
		if at := Addr(t, network); !errors.Is(listen(at), syscall.EADDRINUSE) {
			t.Errorf("%s: another socket can have %s", network, at)
		}
	}
}
