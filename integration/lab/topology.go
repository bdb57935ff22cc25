package lab

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// Config describes a lab.
type Config struct {
	Sites      []Site
	Dir        string       // for logs and the hosts' /var/lib/meshd; "": a temporary one that Close removes
	PrivateTmp bool         // hosts have a /tmp of their own; by default they share the machine's, so that programs there are visible
	Log        *slog.Logger // nil: no log

	// Carried, which may be nil, is told by Close what the links that are not plain then
	// have carried, both ways and all together.
	Carried func(wan.Counters)
}

// TwoSites is a public host "hub" and the sites "alpha" (a1, a2) and "beta"
// (b1, b2), each behind the given NAT.
func TwoSites(nat NAT) Config {
	return Config{Sites: []Site{
		{Name: "hubs", Hosts: []string{"hub"}},
		{Name: "alpha", NAT: nat, Hosts: []string{"a1", "a2"}},
		{Name: "beta", NAT: nat, Hosts: []string{"b1", "b2"}},
	}}
}

// OneLAN is two hosts, a1 and a2, on the LAN of the public site "alpha".
func OneLAN() Config {
	return Config{Sites: []Site{{Name: "alpha", Hosts: []string{"a1", "a2"}}}}
}

// With returns the configuration with change applied to the named sites, to all
// if none is named. It panics if there is no such site.
func (c Config) With(change func(*Site), sites ...string) Config {
	c.Sites = slices.Clone(c.Sites)
	for _, name := range sites {
		if !slices.ContainsFunc(c.Sites, func(s Site) bool { return s.Name == name }) {
			panic("lab: no site is called " + name)
		}
	}
	for i := range c.Sites {
		if len(sites) == 0 || slices.Contains(sites, c.Sites[i].Name) {
			change(&c.Sites[i])
		}
	}
	return c
}

// WithWAN returns the configuration with the link to the Internet of the named
// sites, of all if none is named. What goes from site to site crosses two links.
func (c Config) WithWAN(link wan.Link, sites ...string) Config {
	return c.With(func(s *Site) { s.WAN = link }, sites...)
}

// Validate says what is wrong with the configuration, if anything.
func (c Config) Validate() error {
	if len(c.Sites) == 0 || len(c.Sites) > maxSites {
		return fmt.Errorf("lab: %d sites: there must be 1 to %d", len(c.Sites), maxSites)
	}
	sites := map[string]bool{"lo": true}
	hosts := map[string]bool{"lo": true, "lan": true, "wan": true} // a host's port on its router bears its name
	for _, s := range c.Sites {
		if err := s.validate(); err != nil {
			return err
		}
		if sites[s.Name] {
			return fmt.Errorf("lab: site name %q is taken", s.Name)
		}
		sites[s.Name] = true
		for _, h := range s.Hosts {
			if len(h) > 15 || !labelRE.MatchString(h) {
				return fmt.Errorf("lab: host name %q is not a DNS label of at most 15 characters", h)
			}
			if hosts[h] {
				return fmt.Errorf("lab: host name %q is taken", h)
			}
			hosts[h] = true
		}
	}
	return nil
}
