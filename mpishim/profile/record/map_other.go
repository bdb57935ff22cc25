//go:build !linux

package record

import (
	"errors"
	"os"
)

const noFollow = 0

// mapFile is Linux's, as the nodes of a network are.
func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) {}
