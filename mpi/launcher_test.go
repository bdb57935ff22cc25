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
