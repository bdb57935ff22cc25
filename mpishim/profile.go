package mpishim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/exec"
	"github.com/meshmpi/meshmpi/mpishim/profile"
	"github.com/meshmpi/meshmpi/mpishim/profile/record"
)

// NewProfile returns what a plan's Profile is when its job is to be profiled. The
// error says in one line that the job is too large for that.
func NewProfile(p Plan) (string, error) {
	if n := p.size(); n > record.MaxRanks {
		return "", failf(CodeFailed, "--profile takes jobs of at most %d ranks, not %d; leave it out", record.MaxRanks, n)
	}
	return newSecret(), nil
}

// profileSilence is how long a node that sends records may be silent.
const profileSilence = 15 * time.Second

// Collect fetches what the ranks of a job that has ended have recorded, from all
// nodes at the same time, and makes its profile. What is declared of links is the
// caller's to say. A node that sends nothing is a line in notes, and so is a record
// that is none; the profile lacks it. It is an error if there are no records at all.
func Collect(ctx context.Context, p Plan, remote Remote, sites, between []profile.Link) (result *profile.Profile, notes []string, err error) {
	job := profile.Job{Program: p.words(), MPI: string(p.Launcher.Kind), Sites: sites, Between: between}
	for _, pl := range p.Places {
		job.Places = append(job.Places, profile.Place{Node: pl.Host.Name, Site: pl.Host.Site, Ranks: pl.Ranks})
	}
	b, err := profile.NewBuilder(job)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex // guards b and notes
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, fmt.Sprintf(format, args...))
	}
	take := func(node string, raw []byte) {
		r, err := record.Parse(raw)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			err = b.Add(node, r)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("node %s: %v", node, err))
		}
	}
	for _, pl := range p.Places {
		if pl.Host.Self {
			dir := profileDir(profileRoot(), p.Profile, pl.Host.Name)
			if err := eachRecord(dir, func(raw []byte) error { take(pl.Host.Name, raw); return nil }); err != nil {
				note("node %s: %v", pl.Host.Name, err)
			}
		}
	}
	_ = eachRemote(p.Places, func(h Host) error {
		if err := fetchRecords(ctx, p, h, remote, take); err != nil {
			note("%v", err)
		}
		return nil
	})
	if b.Recorded() == 0 {
		return nil, notes, failf(CodeFailed, "no rank has recorded anything: %s", p.whyNone(notes))
	}
	return b.Profile(), notes, nil
}

// whyNone guesses why there are no records.
func (p Plan) whyNone(notes []string) string {
	switch {
	case len(notes) > 0:
		return notes[0]
	case p.Launcher.Kind == Go:
		return "did the program call mpi.Init or mpi.Main?"
	}
	return fmt.Sprintf("did it call MPI_Init, is it linked to a shared MPI, and is %s beside meshd on every node?", profileLibrary)
}

// size is how many ranks the job has.
func (p Plan) size() (n int) {
	for _, pl := range p.Places {
		n += pl.Ranks
	}
	return n
}

// words is the job's command line, as people recognize it.
func (p Plan) words() string {
	var parts []string
	for _, a := range p.Apps {
		parts = append(parts, strings.Join(append([]string{filepath.Base(a.Prog)}, a.Args...), " "))
	}
	return clean(strings.Join(parts, " : "))
}

// fetchRecords has another node send its records.
func fetchRecords(ctx context.Context, p Plan, h Host, remote Remote, take func(node string, raw []byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	var errs bytes.Buffer
	var code int
	ended := make(chan error, 1)
	go func() { // ends with the command, at the latest when ctx does
		var err error
		code, err = remote(ctx, h.Name, exec.RunOptions{
			Command: `exec /bin/sh -c 'PATH="${MESH_BIN:-/usr/bin}:$PATH" exec meshrun ` + ProfileArg + ` ` + p.Profile + `'`,
			Stdout:  w, Stderr: limit(&errs, 4<<10), Silence: profileSilence,
		})
		w.Close()
		ended <- err
	}()
	bad := readRecords(r, p.size(), func(raw []byte) { take(h.Name, raw) })
	if bad != nil {
		cancel()
	}
	_, _ = io.Copy(io.Discard, r) // so that the command can end
	err := <-ended
	switch {
	case errors.Is(bad, errRecords): // the rest follows from that
		return fmt.Errorf("node %s: %w", h.Name, bad)
	case err != nil:
		return err // it names the node
	case code != 0:
		return fmt.Errorf("node %s: its records could not be read: %.200s", h.Name, strings.Join(strings.Fields(errs.String()), " "))
	case bad != nil:
		return fmt.Errorf("node %s: %w", h.Name, bad)
	}
	return nil
}
