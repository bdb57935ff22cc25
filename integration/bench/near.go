package bench

import (
	"context"
	"time"
)

// near has neighbours use their LAN, as a cluster would that trusts its own, and waits
// until they all do.
func (s *twoSites) near(ctx context.Context, env *Env) error {
	if env.Sealed {
		return nil
	}
	for site, hosts := range map[string][]string{"alpha": s.a, "beta": s.b} {
		if _, err := s.net.Ctl(ctx, "hub", "site", "set", site, "--native", "on"); err != nil {
			return err
		}
		for _, a := range hosts {
			for _, b := range hosts {
				if a == b {
					continue
				}
				if _, err := s.net.AwaitPath(ctx, a, b, "native", 30*time.Second); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// insideSites says how neighbours reach each other.
func (env *Env) insideSites() string {
	if env.Sealed {
		return "Within a site packets go through the overlay, sealed."
	}
	return "Within a site packets go over the LAN (`native`), for all that is compared."
}
