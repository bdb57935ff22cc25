// Package boot says which boot of this machine this is. What the kernel gave out in another,
// process ids above all, means nothing in this one.
package boot

import (
	"fmt"
	"os"
	"strings"
)

// ID returns what the kernel calls this boot: random, the same until the next, also in
// containers.
func ID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
