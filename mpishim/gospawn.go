package mpishim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/meshmpi/meshmpi/mpi/pmi"
)

// spawn starts another job for a rank: its ranks go to the nodes of this job in
// turn, or to those that the hint "host" names. It returns when the job has met the one
// of that rank, or all have begun with MPI where nothing is told of that; and when one has
// ended before, or ctx does, which ends the job. It is called by servers.
func (j *goJob) spawn(ctx context.Context, req pmi.SpawnRequest) ([]int, error) {
	type started struct {
		w   *goWorld
		err error
	}
	done := make(chan started, 1)
	j.post(func() {
		w, err := j.spawnHere(req)
		done <- started{w, err}
	})
	var s started
	select {
	case s = <-done:
	case <-j.ctx.Done(): // and the job's owner with it
		return nil, errors.New("the job is ending")
	}
	if s.err != nil {
		return nil, s.err
	}
	var met <-chan struct{}
	if !req.Joins {
		met = s.w.srv.Met()
	}
	over := ctx.Done()
	for {
		select {
		case <-met:
			met = nil
			j.post(s.w.begins)
		case <-s.w.begun:
			return make([]int, req.Ranks()), nil
		case err := <-s.w.failure:
			return nil, err
		case <-over:
			over = nil
			j.post(func() { j.giveUp(s.w, context.Cause(ctx)) })
		case <-j.ctx.Done():
			return nil, errors.New("the job is ending")
		}
	}
}

func (j *goJob) spawnHere(req pmi.SpawnRequest) (*goWorld, error) {
	if j.ending {
		return nil, errors.New("the job is ending")
	}
	if n := req.Ranks(); n > MaxRanks {
		return nil, fmt.Errorf("%d ranks are too many; a job has at most %d", n, MaxRanks)
	}
	opt := worldOptions{keys: req.Keys, spawned: true, joins: req.Joins}
	var apps []App
	var places []int
	for _, a := range req.Apps {
		prog := a.Prog
		if strings.Contains(prog, "/") && !filepath.IsAbs(prog) {
			prog = filepath.Join(j.p.Wdir, prog)
		}
		apps = append(apps, App{N: a.N, Prog: prog, Args: a.Args})
		if dir := a.Info["wdir"]; dir != "" {
			opt.wdir, opt.must = dir, true
		}
		chosen, err := j.choose(a.Info["host"])
		if err != nil {
			return nil, err
		}
		for range a.N {
			places = append(places, chosen[j.turn%len(chosen)])
			j.turn++
		}
	}
	return j.startWorld(apps, places, opt)
}

// choose returns the living nodes of the job that a list names; all for "".
func (j *goJob) choose(list string) ([]int, error) {
	var chosen []int
	for i, n := range j.nodes {
		named := list == ""
		for name := range strings.SplitSeq(list, ",") {
			named = named || isNamed(n.host, strings.TrimSpace(name))
		}
		if named && !n.over {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no node of this job is called %s", list)
	}
	return chosen, nil
}

// fails ends a spawned job of which a process, which has come to MPI or not, has ended
// before the job counts as started:
// nobody will join it to the one that spawned it. It reports whether that is so; then
// this is an error of Spawn's, and none of the job.
func (j *goJob) fails(g *goProc, came bool, what string) bool {
	w := g.world
	if w.failed || w.met || w.failure == nil {
		return w.failed
	}
	if !w.joins && w.hasMet() {
		return false
	}
	when := "MPI had not begun there"
	if came {
		when = "its job had not met the one that spawned it"
	}
	j.giveUp(w, fmt.Errorf("rank %s %s; %s", g.label(), cmp.Or(what, "ended"), when))
	return true
}

// hasMet reports whether all ranks have begun with MPI.
func (w *goWorld) hasMet() bool {
	select {
	case <-w.srv.Met():
		return true
	default:
		return false
	}
}

// giveUp ends a spawned job that is of no use to the one that spawned it.
func (j *goJob) giveUp(w *goWorld, why error) {
	if w.failed || w.failure == nil {
		return
	}
	w.failed = true
	if !w.met {
		w.failure <- why
	}
	for _, g := range w.procs {
		j.fence(g)
	}
}

// joined is what a spawned job says of its meeting with the one that spawned it.
func (j *goJob) joined(w *goWorld, err error) {
	switch {
	case !w.joins: // nobody has asked
	case err == nil:
		w.begins()
	default:
		if w.met && !w.failed {
			fmt.Fprintf(j.scr.errors(), "meshrun: spawned job %d has not met the one that spawned it, and ends: %v\n", w.id, err)
		}
		j.giveUp(w, err)
	}
}

// begins counts a spawned job as started.
func (w *goWorld) begins() {
	if !w.failed && !w.met {
		w.met = true
		close(w.begun)
	}
}
