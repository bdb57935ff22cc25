package resolver

import (
	"bytes"
	"context"
	"time"
)

// How Watch paces itself.
const (
	pollEvery  = time.Second      // looks at resolv.conf; a foreign change is acted on after two equal looks
	linkEvery  = 30 * time.Second // looks at systemd-resolved
	maxEdits   = 5                // edits within editWindow, lest two programs fight over the file
	editWindow = time.Minute
)

// watch is what Watch remembers between two looks.
type watch struct {
	seen    []byte // the last foreign content
	missing bool   // it was that there is no file
	target  string // where; "" if the last look saw nothing foreign
	edits   []time.Time
	looked  time.Time // at systemd-resolved
	fought  bool      // that the limit was reached has been logged
}

// Watch follows what others do to resolv.conf until ctx ends, then returns nil:
// it learns the servers they put there and edits their content as Install did,
// so that Close leaves theirs. It looks once a second rather than asking
// inotify, which says nothing of mounts and of the directories along a chain of
// links, and whose queue can overflow; a look costs some microseconds.
func (r *Resolver) Watch(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	said := "" // the last look's error, lest it be said each second
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err := r.look(ctx)
			if err == nil {
				said = ""
			} else if text := err.Error(); text != said {
				said = text
				r.cfg.Log.Warn("resolver", "err", err)
			}
		}
	}
}

// look is one look at the file and, now and then, at systemd-resolved.
func (r *Resolver) look(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	now := r.env.now()
	if r.journal.Link != "" && now.Sub(r.watch.looked) >= linkEvery {
		r.watch.looked = now
		if !linkSet(r.cfg.Root, r.journal.Link) {
			if err := setLink(ctx, r.env.ctl, r.cfg, r.edit.search); err != nil {
				return err
			}
		}
	}
	target, err := follow(r.cfg.Root, r.path())
	if err != nil {
		return err
	}
	data, exists, err := read(target)
	if err != nil {
		return err
	}
	if f := r.journal.File; f != nil && exists && target == f.Target && bytes.Equal(data, f.Written) {
		r.watch.target, r.watch.fought = "", false
		return nil
	}
	if w := &r.watch; w.target != target || w.missing == exists || !bytes.Equal(w.seen, data) {
		w.target, w.missing, w.seen = target, !exists, data
		return nil // it may be half written: wait for a second look
	}
	return r.adopt(target, data, exists, now)
}

// adopt learns from a foreign content and edits it, if programs read it.
func (r *Resolver) adopt(target string, data []byte, exists bool, now time.Time) error {
	orig, edited := strip(data, r.cfg.Server)
	others := outer(data, r.cfg.Server)
	r.learn(orig, others...)
	old := r.journal.File
	if old != nil && target == old.Target && len(others) > 0 {
		return r.stand(orig, data)
	}
	switch {
	case r.journal.Link != "" && stub(orig): // systemd-resolved answers programs
		return r.leaveFile()
	case old == nil && !exists: // it is being restarted
		return nil
	case old != nil && target == old.Target && edited && len(orig) == 0:
		exists = old.Existed
	}
	w := &r.watch
	for len(w.edits) > 0 && now.Sub(w.edits[0]) >= editWindow {
		w.edits = w.edits[1:]
	}
	if len(w.edits) >= maxEdits {
		if !w.fought {
			w.fought = true
			r.cfg.Log.Warn("resolver: another program keeps rewriting the file; overlay names may fail until it stops", "file", target)
		}
		return nil
	}
	if old != nil && target != old.Target {
		if _, err := old.heal(); err != nil {
			return err
		}
		// Healing may have reached the new target too, if it held a copy.
		again, ok, err := read(target)
		if err != nil {
			return err
		}
		orig, exists = again, ok
	}
	if err := r.put(target, orig, exists); err != nil {
		return err
	}
	w.edits = append(w.edits, now)
	r.cfg.Log.Info("resolver learned from a change", "file", target, "upstreams", r.Upstreams())
	w.target = ""
	return nil
}

// stand leaves a file alone in which another network's daemon has put its edit
// before ours.
func (r *Resolver) stand(orig, data []byte) error {
	next, file := r.journal, *r.journal.File
	file.Original, file.Written = orig, data
	next.File = &file
	if err := file.check(); err != nil {
		return err
	}
	if err := saveJournal(r.cfg.StateDir, next); err != nil {
		return err
	}
	r.journal = next
	r.cfg.Log.Info("resolver shared with another network's meshd", "file", file.Target, "upstreams", r.Upstreams())
	r.watch.target = ""
	return nil
}

// leaveFile gives resolv.conf up in favour of systemd-resolved.
func (r *Resolver) leaveFile() error {
	if r.journal.File == nil {
		return nil
	}
	if _, err := r.journal.File.heal(); err != nil {
		return err
	}
	r.journal.File = nil
	return saveJournal(r.cfg.StateDir, r.journal)
}
