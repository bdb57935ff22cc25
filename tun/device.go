package tun

import (
	"errors"
	"os"
	"time"

	wgtun "golang.zx2c4.com/wireguard/tun"
)

// Device is what the overlay moves packets to and from: WireGuard's name for it,
// and a way to have its reader look up.
type Device interface {
	wgtun.Device
	// Interrupt makes the Read that is under way, or else the next, return; it may
	// return no packets and no error. It does not block.
	Interrupt()
}

// kernelDevice is a TUN of the kernel.
type kernelDevice struct{ wgtun.Device }

// Read implements tun.Device.
func (d kernelDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	n, err := d.Device.Read(bufs, sizes, offset)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, d.File().SetReadDeadline(time.Time{})
	}
	return n, err
}

// Interrupt implements Device.
func (d kernelDevice) Interrupt() { _ = d.File().SetReadDeadline(time.Unix(1, 0)) } // it fails when closed
