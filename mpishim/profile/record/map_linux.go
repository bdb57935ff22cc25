package record

import (
	"os"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW

// mapFile gives a file so many bytes, all of them present, and maps it.
func mapFile(f *os.File, size int) ([]byte, error) {
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmap(b []byte) { _ = unix.Munmap(b) } // fails for nothing that was mapped
