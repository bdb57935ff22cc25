package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshmpi/meshmpi/mpi"
	"github.com/meshmpi/meshmpi/mpi/mpitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSoak is a short one, of 10^5 messages, in one process: all ranks use the same
// memory, so only messages are looked at.
func TestSoak(t *testing.T) {
	for name, opts := range map[string][]mpitest.Option{
		"memory":  nil,
		"network": {mpitest.WAN(0, 0)},
		"links":   {mpitest.WAN(0, 0), mpitest.With(mpi.WithLinks(4))},
	} {
		t.Run(name, func(t *testing.T) {
			mpitest.Run(t, 3, func(c *mpi.Comm) error {
				p := newPlayer(c, 7)
				for range 12 {
					if err := p.round(perRound); err != nil {
						return err
					}
				}
				return p.end(time.Now(), usage{}, usage{})
			}, opts...)
		})
	}
}

// TestCheck: a message that is not the one that was sent is seen.
func TestCheck(t *testing.T) {
	longest, sizes := 0, map[bool]int{}
	for seq := range 2000 {
		m := message{1, 2, 3, seq}
		key := m.key(9)
		b := make([]byte, sizeOf(key))
		fill(b, key)
		if err := m.check(b, 9); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, len(b))
		sizes[len(b) < 128]++
		for _, at := range []int{0, len(b) / 2, len(b) - 1} {
			if len(b) == 0 {
				continue
			}
			b[at] ^= 4
			if m.check(b, 9) == nil {
				t.Fatalf("byte %d of %d is changed, and nothing is said", at, len(b))
			}
			b[at] ^= 4
		}
		if m.seq++; len(b) > 8 && m.check(b, 9) == nil {
			t.Fatal("a message is taken for the next one")
		}
	}
	if longest < maxSize/2 || sizes[true] < 4*sizes[false] {
		t.Errorf("the longest of 2000 has %d bytes, %d are short", longest, sizes[true])
	}
}

func TestUsage(t *testing.T) {
	u, err := used()
	if err != nil || u[0] <= 0 || u[1] <= u[0] || u[2] <= 0 || u[3] < 3 {
		t.Errorf("used: %v, %v", u, err)
	}
	if _, err := parseRSS("VmRSS: many kB\n"); err == nil {
		t.Error("no number is taken for one")
	}
	was := usage{1000, 50000, 7, 12}
	if err := (usage{1500, 60000, 7, 12}).grown(was); err != nil {
		t.Error(err)
	}
	if err := (usage{5000, 50000, 8, 12}).grown(was); err == nil || !strings.Contains(err.Error(), "7 goroutines, and 8") || !strings.Contains(err.Error(), "1000 KiB of heap") {
		t.Error(err)
	}
}
