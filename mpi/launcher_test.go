package mpi

import (
	"slices"
	"testing"
)

// TestFromEnvironment reads the variables that set a whole job up.
func TestFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		env   map[string]string
		opts  []Option
		addrs []string
		links int
		bad   bool
	}{
		{},
		{env: map[string]string{"MESH_ADDRESS": "10.0.0.1"}, addrs: []string{"10.0.0.1"}},
		{env: map[string]string{"MESH_ADDRESS": "10.1.0.1, 10.2.0.1:7,", "MESH_LINKS": "4"}, addrs: []string{"10.1.0.1", "10.2.0.1:7"}, links: 4},
		{env: map[string]string{"MESH_ADDRESS": "10.0.0.1", "MESH_LINKS": "4"}, opts: []Option{WithAddresses("a", "b"), WithLinks(2)}, addrs: []string{"a", "b"}, links: 2},
		{env: map[string]string{"MESH_LINKS": "17"}, bad: true},
		{env: map[string]string{"MESH_LINKS": "many"}, bad: true},
	} {
		var o options
		for _, f := range c.opts {
			f(&o)
		}
		err := o.fromEnvironment(func(name string) string { return c.env[name] })
		if bad := err != nil; bad != c.bad || !bad && (!slices.Equal(o.addresses, c.addrs) || o.links != c.links) {
			t.Errorf("%v: got %v, %d links, %v; want %v, %d", c.env, o.addresses, o.links, err, c.addrs, c.links)
		}
	}
}

// TestGroupLinks decides by the number of ranks, or as it is told.
func TestGroupLinks(t *testing.T) {
	sites := func(ranks ...int) (all []int) {
		for s, n := range ranks {
			for range n {
				all = append(all, s)
			}
		}
		return all
	}
	for _, c := range []struct {
		sites []int
		env   string
		opts  []Option
		want  int
	}{
		{sites: sites(8, 8)},
		{sites: sites(1000)},
		{sites: sites(64, 64)},
		{sites: sites(65, 64, 3), want: groupDefault},
		{sites: sites(3, 64, 65), want: groupDefault},
		{sites: sites(65, 65), env: "0"},
		{sites: sites(8, 8), env: "2", want: 2},
		{sites: sites(8, 8), env: "2", opts: []Option{WithGroupLinks(3)}, want: 3},
		{sites: sites(8, 8), opts: []Option{WithGroupLinks(99)}, want: mostGroupLinks},
	} {
		var o options
		for _, f := range c.opts {
			f(&o)
		}
		if err := o.fromEnvironment(func(name string) string { return map[string]string{"MESH_GROUP_LINKS": c.env}[name] }); err != nil {
			t.Error(err)
		}
		if got := o.groupLinks(c.sites); got != c.want {
			t.Errorf("%d ranks, %q: %d connections, want %d", len(c.sites), c.env, got, c.want)
		}
	}
}

// toldAbort is a launcher that notes with which code it is to end the job.
type toldAbort struct {
	Launcher
	code int
}

// Abort implements Launcher.
func (l *toldAbort) Abort(code int) error {
	l.code = code
	return nil
}

// TestAbortCode: no process that aborts looks as if it had done its work.
func TestAbortCode(t *testing.T) {
	for code, want := range map[int]int{0: 1, 256: 1, 7: 7, -1: -1} {
		l, exited := &toldAbort{}, 0
		w := &World{launcher: l, exit: func(code int) { exited = code }}
		if w.Abort(code); l.code != want || exited != want {
			t.Errorf("Abort(%d): the launcher is told %d, the process ends with %d; want %d", code, l.code, exited, want)
		}
	}
}
