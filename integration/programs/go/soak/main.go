// Command soak exchanges very many messages between all ranks by package mpi, of
// random sizes from 0 to 256 KiB, most of them small, with random tags, sent and
// asked for in every way, wildcards and probes among them, by two goroutines of
// each rank. Each message is checked: that it is the next of its sender and tag,
// whole and unchanged. It fails if one is lost or left over, or if a rank's memory,
// goroutines or open files have grown.
//
// Rank 0 prints lines "soak MESSAGES SECONDS HEAP_KIB RSS_KIB GOROUTINES FILES", the
// most of any rank at that time, after a collection of garbage; and in the end
// "soaked MESSAGES BYTES SECONDS".
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

// marks is how often it is looked at what ranks use. From the first of these marks
// on nothing may grow.
const (
	marks     = 20
	firstMark = 4
)

// What may be more at the end than at firstMark, in KiB: the heap by what a mark
// itself allocates, the resident size by what the runtime keeps for later.
const (
	heapSlack = 1 << 10
	rssSlack  = 32 << 10
)

func main() {
	messages := flag.Int("messages", 1_000_000, "to send in all")
	seed := flag.Uint64("seed", 1, "of what is random")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error { return soak(c, *messages, *seed) })
}

func soak(c *mpi.Comm, messages int, seed uint64) error {
	if messages < marks*c.Size() {
		return fmt.Errorf("soak: -messages %d is too few for %d ranks: at least %d", messages, c.Size(), marks*c.Size())
	}
	p := newPlayer(c, seed)
	began := time.Now()
	var first, last usage
	for k := range marks {
		for todo := part(part(messages, c.Size(), c.Rank()), marks, k); ; todo -= perRound {
			if err := p.round(max(0, min(todo, perRound))); err != nil {
				return err
			}
			more := []bool{todo > perRound}
			if err := mpi.Allreduce(c, nil, more, mpi.LOr); err != nil {
				return err
			}
			if !more[0] {
				break
			}
		}
		sent := []int{0}
		for _, t := range p.sent {
			for _, n := range t {
				sent[0] += n
			}
		}
		var err error
		if last, err = used(); err != nil {
			return err
		}
		if err := errors.Join(mpi.Allreduce(c, nil, sent, mpi.Sum), mpi.Allreduce(c, nil, last[:], mpi.Max)); err != nil {
			return err
		}
		if k+1 == firstMark {
			first = last
		}
		if c.Rank() == 0 {
			fmt.Printf("soak %d %.1f %d %d %d %d\n", sent[0], time.Since(began).Seconds(), last[0], last[1], last[2], last[3])
		}
	}
	return p.end(began, first, last)
}

// end looks whether anything is left, and whether anything has grown.
func (p *player) end(began time.Time, first, last usage) error {
	if err := mpi.Barrier(p.c); err != nil {
		return err
	}
	st, found, err := p.c.Iprobe(mpi.AnySource, mpi.AnyTag)
	if err != nil {
		return err
	}
	if found {
		return fmt.Errorf("a message is left over: %+v", st)
	}
	if err := last.grown(first); err != nil {
		return err
	}
	total := []int64{0, p.bytes}
	for _, t := range p.got {
		for _, n := range t {
			total[0] += int64(n)
		}
	}
	if err := mpi.Allreduce(p.c, nil, total, mpi.Sum); err != nil {
		return err
	}
	if p.c.Rank() == 0 {
		fmt.Printf("soaked %d %d %.1f\n", total[0], total[1], time.Since(began).Seconds())
	}
	return nil
}

// part is how many of n are part i of k.
func part(n, k, i int) int { return n*(i+1)/k - n*i/k }

// usage is heap and resident size in KiB, goroutines and open files.
type usage [4]int64

// used is what this process uses.
func used() (u usage, err error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, err
	}
	rss, err := parseRSS(string(status))
	return usage{int64(m.HeapAlloc >> 10), rss, int64(runtime.NumGoroutine()), int64(len(files))}, err
}

// parseRSS finds the resident size in /proc/PID/status (proc(5)), in KiB.
func parseRSS(status string) (int64, error) {
	_, after, _ := strings.Cut(status, "\nVmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "kB")), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resident size in /proc/self/status: %w", err)
	}
	return n, nil
}

// grown says what is more than it was.
func (u usage) grown(was usage) (err error) {
	for i, what := range [...]struct {
		name  string
		slack int64
	}{{"KiB of heap", heapSlack}, {"KiB resident", rssSlack}, {"goroutines", 0}, {"open files", 0}} {
		if u[i] > was[i]+what.slack {
			err = errors.Join(err, fmt.Errorf("it grows: %d %s, and %d in the end", was[i], what.name, u[i]))
		}
	}
	return err
}
