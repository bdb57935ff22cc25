// Command farm counts primes with a task farm: rank 0 hands out intervals, the
// others search them. A worker that dies loses nothing but its task, which
// another one gets, if the launcher lets the job go on (meshrun --ft).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

const (
	tagTask   = 1 // first and last number to look at; none left if the last is 0
	tagResult = 2 // number of the task and its count
)

func main() {
	last := flag.Int("last", 4_000_000, "count the primes up to this number")
	tasks := flag.Int("tasks", 200, "tasks to make of it")
	kill := flag.Int("kill", -1, "rank that kills itself when it gets its first task, to see what happens")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error {
		if c.Size() == 1 {
			return errors.New("a farm needs at least 2 ranks")
		}
		if c.Rank() == 0 {
			return farm(c, *last, *tasks)
		}
		return work(c, c.Rank() == *kill)
	})
}

// farm hands out tasks and collects results.
func farm(c *mpi.Comm, last, tasks int) error {
	began := time.Now()
	todo := make([]int, tasks)
	for i := range todo {
		todo[i] = tasks - 1 - i
	}
	has := map[int]int{} // task of each worker that works
	dead := map[int]bool{}
	primes := 0
	give := func(worker int) {
		if len(todo) == 0 || dead[worker] {
			return
		}
		t := todo[len(todo)-1]
		if mpi.Send(c, []int{t, last * t / tasks, last * (t + 1) / tasks}, worker, tagTask) == nil {
			has[worker], todo = t, todo[:len(todo)-1]
		}
	}
	for w := 1; w < c.Size(); w++ {
		give(w)
	}
	for len(has) > 0 {
		result := make([]int, 2)
		st, err := mpi.Recv(c, result, mpi.AnySource, tagResult)
		if errors.Is(err, mpi.ErrProcFailed) { // a worker has died that could have sent it
			lost, err := c.AckFailed()
			if err != nil {
				return err
			}
			if err := bury(c, lost, dead, has, &todo); err != nil {
				return err
			}
			for w := 1; w < c.Size(); w++ {
				if _, works := has[w]; !works {
					give(w)
				}
			}
			continue
		}
		if err != nil {
			return err
		}
		primes += result[1]
		delete(has, st.Source)
		give(st.Source)
	}
	if len(todo) > 0 {
		return fmt.Errorf("all workers have died, with %d tasks left", len(todo))
	}
	for w := 1; w < c.Size(); w++ {
		if !dead[w] {
			if err := mpi.Send(c, []int{0, 0, 0}, w, tagTask); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
		}
	}
	fmt.Printf("farm: %d primes up to %d, %d tasks, %d workers of which %d died, %v\n",
		primes, last, tasks, c.Size()-1, len(dead), time.Since(began).Round(time.Millisecond))
	return nil
}

// bury takes back the tasks of workers that have died.
func bury(c *mpi.Comm, lost *mpi.Group, dead map[int]bool, has map[int]int, todo *[]int) error {
	ranks := make([]int, lost.Size())
	for i := range ranks {
		ranks[i] = i
	}
	ranks, err := lost.Translate(ranks, c.Group())
	if err != nil {
		return err
	}
	for _, w := range ranks {
		if dead[w] {
			continue
		}
		dead[w] = true
		fmt.Printf("farm: worker %d has died\n", w)
		if t, ok := has[w]; ok {
			*todo = append(*todo, t)
			delete(has, w)
		}
	}
	return nil
}

// work does tasks until there are none.
func work(c *mpi.Comm, dies bool) error {
	for {
		task := make([]int, 3)
		if _, err := mpi.Recv(c, task, 0, tagTask); err != nil {
			return err
		}
		if task[2] == 0 {
			return nil
		}
		if dies {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if err := mpi.Send(c, []int{task[0], count(task[1], task[2])}, 0, tagResult); err != nil {
			return err
		}
	}
}

// count counts the primes p with first < p ≤ last.
func count(first, last int) (n int) {
	for p := max(first+1, 2); p <= last; p++ {
		prime := true
		for d := 2; d*d <= p && prime; d++ {
			prime = p%d != 0
		}
		if prime {
			n++
		}
	}
	return n
}
