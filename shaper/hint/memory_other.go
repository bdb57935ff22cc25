//go:build !linux

package hint

import "errors"

// Elsewhere there is no daemon that paces: a page is memory of the process.

func newMemory() (fd int, mem []byte, err error) { return -1, make([]byte, Size), nil }

func mapMemory(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapMemory([]byte) {}

func closeFile(int) {}

func offer(string, int) (int, error) { return -1, errors.ErrUnsupported }

func ended(int) bool { return true }

func pathFits(path string) bool { return path != "" }
