package tun

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	wgtun "golang.zx2c4.com/wireguard/tun"
)

// socketTUN is a device whose kernel is the other end of a socket.
type socketTUN struct {
	wgtun.Device
	file *os.File
}

func (s socketTUN) File() *os.File { return s.file }

// TestReadDrops: packets that make no sense, or are too large, are dropped with an
// error after which WireGuard reads on, and what comes next is read.
func TestReadDrops(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	kernel, file := os.NewFile(uintptr(ends[0]), "kernel"), os.NewFile(uintptr(ends[1]), "tun")
	defer kernel.Close()
	defer file.Close()
	d, err := newKernelDevice(socketTUN{file: file})
	if err != nil {
		t.Fatal(err)
	}
	good := append(make([]byte, virtioLen), []byte("a packet")...)
	unknown := bytes.Clone(good)
	unknown[1] = 77
	short := super(false, false, make([]byte, 3000), 1000)[:virtioLen+20]
	large := append(make([]byte, virtioLen), make([]byte, 2000)...)
	bufs, sizes := [][]byte{make([]byte, 16+1500)}, make([]int, 1)
	for _, bad := range [][]byte{unknown, short, large, good[:virtioLen], good[:3]} {
		for _, pkt := range [][]byte{bad, good} {
			if _, err := kernel.Write(pkt); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := d.Read(bufs, sizes, 16); n != 0 || !errors.Is(err, wgtun.ErrTooManySegments) {
			t.Errorf("of %d bytes that make no sense: %d packets and %v, want an error that WireGuard passes over", len(bad), n, err)
		}
		if n, err := d.Read(bufs, sizes, 16); n != 1 || err != nil || string(bufs[0][16:16+sizes[0]]) != "a packet" {
			t.Errorf("then %d packets and %v", n, err)
		}
	}
}
