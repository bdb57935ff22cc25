package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mpishim"
	"github.com/meshmpi/meshmpi/mpishim/profile"
)

// collectTime bounds how long nodes may take to send what was recorded.
const collectTime = 2 * time.Minute

// prepare makes the folder for --profile; made says that it was not there before.
func (o *options) prepare() (made bool, err error) {
	if o.Profile, err = filepath.Abs(o.Profile); err != nil {
		return false, err
	}
	if made, err = profile.Prepare(o.Profile); err != nil {
		return false, fmt.Errorf("--profile: %s", strings.TrimPrefix(err.Error(), "profile: "))
	}
	return made, nil
}

// profile fetches the records of a job that has ended, and writes what they say. The
// job's exit code stays what it is.
func (o *options) profile(ctx context.Context, client *api.Client, p mpishim.Plan, remote mpishim.Remote, signals <-chan os.Signal) {
	ctx, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with this function
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP { // others were for the ranks
					cancel()
				}
			case <-done:
				return
			}
		}
	}()
	sites, between := links(ctx, client)
	result, notes, err := mpishim.Collect(ctx, p, remote, sites, between)
	for _, n := range notes {
		o.say("profile: %s", strings.TrimPrefix(n, "mpishim: "))
	}
	if err == nil {
		err = result.Write(o.Profile)
	}
	if err != nil {
		o.say("profile: %s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "mpishim: "), "profile: "))
		return
	}
	for i, line := range result.Summary() {
		if i == 0 {
			line = "profile: " + line
		}
		o.say("%s", line)
	}
	o.say("see report.txt, matrix.svg, timeline.svg and profile.json in %s", o.Profile)
}

// links is what is declared of sites' links. Without it there is no rate to advise,
// and the rest of a profile as it is.
func links(ctx context.Context, client *api.Client) (sites, between []profile.Link) {
	known, err := client.Sites(ctx)
	if err != nil {
		return nil, nil
	}
	for _, s := range known.Sites {
		sites = append(sites, profile.Link{A: s.Site, Up: s.Up, Down: s.Down})
	}
	for _, l := range known.Links {
		between = append(between, profile.Link{A: l.A, B: l.B, Up: l.Bandwidth, Down: l.Bandwidth})
	}
	return sites, between
}
