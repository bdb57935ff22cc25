package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

const (
	chaosFor   = 40 * time.Second // unless $CHAOS says otherwise: 1h, say
	chaosLimit = 10 * time.Second // until everybody reaches everybody again; all that happens is over by then

	// chaosStall is what one exchange of the job may take. TCP's own time-outs grow with
	// the outages that it measures.
	chaosStall = 40 * time.Second
)

// TestChaos has things happen to a network, one after the other, and sees to it that
// after each everybody reaches everybody again, and that a job across the sites
// outlives it all. $CHAOS_SEED repeats a run's choices.
func TestChaos(t *testing.T) {
	t.Parallel()
	span := chaosFor
	if s := os.Getenv("CHAOS"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatalf("CHAOS: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatalf("CHAOS_SEED: %v", err)
		}
	}
	t.Logf("CHAOS_SEED=%d", seed)
	l := lab.Start(t, lab.TwoSites(lab.PortPreserving))
	ctx, cancel := context.WithTimeout(t.Context(), span+3*time.Minute)
	defer cancel()
	n, err := deploy.Up(ctx, l, deploy.Options{Bin: bin, InitArgs: []string{"--allow-root-exec"}})
	if err != nil {
		t.Fatal(err)
	}
	defer wantNoRaces(t, l)

	useReno(ctx, t, n)
	job := stream(ctx, t, n, int(span.Seconds()))
	c := chaos{ctx: ctx, n: n, rng: rand.New(rand.NewPCG(seed, 1)), taken: 100}
	names := make([]string, 0, len(happenings))
	for name := range happenings {
		names = append(names, name)
	}
	slices.Sort(names)
	worst, count := map[string]time.Duration{}, map[string]int{}
	for began := time.Now(); time.Since(began) < span; {
		name := names[c.rng.IntN(len(names))]
		where, err := happenings[name](&c)
		if err != nil {
			t.Fatalf("%s %s: %v", name, where, err)
		}
		took, pair := c.recovered()
		if took > chaosLimit {
			t.Fatalf("%v after %s, %s: %s took more than %v", time.Since(began).Round(time.Second), name, where, pair, chaosLimit)
		}
		if took > chaosLimit/5 {
			t.Logf("after %v %s, %s: %s took %v", time.Since(began).Round(time.Second), name, where, pair, took.Round(100*time.Millisecond))
		}
		count[name]++
		worst[name] = max(worst[name], took)
		pause(ctx, time.Duration(c.rng.IntN(2000))*time.Millisecond)
	}
	wantStall(t, job.end(t), chaosStall)
	for _, name := range names {
		if count[name] > 0 {
			t.Logf("%-30s %3d times, all reached again within %v", name, count[name], worst[name].Round(100*time.Millisecond))
		}
	}
}

// chaos is a network to which things happen.
type chaos struct {
	ctx   context.Context
	n     *deploy.Network
	rng   *rand.Rand
	taken int // last bytes of addresses, up to this
}

// happenings do what their name says and return where.
var happenings = map[string]func(*chaos) (string, error){
	"a NAT forgets": func(c *chaos) (string, error) {
		s := c.site()
		return s, c.n.Lab.ResetNAT(s)
	},
	"a NAT becomes symmetric": func(c *chaos) (string, error) {
		s := c.site()
		return s, c.n.Lab.SetNAT(s, lab.Symmetric)
	},
	"a NAT becomes port-preserving": func(c *chaos) (string, error) {
		s := c.site()
		return s, c.n.Lab.SetNAT(s, lab.PortPreserving)
	},
	"a host gets another address": func(c *chaos) (string, error) {
		h := c.host()
		c.taken++
		return h, c.shell(h, newAddress(c.taken))
	},
	"the link goes down and up": func(c *chaos) (string, error) {
		h := c.anybody()
		return h, c.shell(h, "ip link set mesh0 down; sleep 0.3; ip link set mesh0 up")
	},
	"routes are flushed": func(c *chaos) (string, error) {
		h := c.anybody()
		return h, c.shell(h, "ip route flush proto 77; ip -6 route flush proto 77")
	},
	"a daemon is killed": func(c *chaos) (string, error) {
		h := c.anybody()
		c.n.Kill(h)
		pause(c.ctx, time.Duration(c.rng.IntN(2000))*time.Millisecond)
		return h, c.n.Run(c.ctx, h)
	},
	"a site is cut off": func(c *chaos) (string, error) {
		s := c.site()
		if err := c.n.Lab.Cut(s); err != nil {
			return s, err
		}
		pause(c.ctx, time.Duration(c.rng.IntN(6000))*time.Millisecond)
		return s, c.n.Lab.Mend(s)
	},
}

func (c *chaos) site() string    { return []string{"alpha", "beta"}[c.rng.IntN(2)] }
func (c *chaos) host() string    { return []string{"a1", "a2", "b1", "b2"}[c.rng.IntN(4)] }
func (c *chaos) anybody() string { return []string{"hub", "a1", "a2", "b1", "b2"}[c.rng.IntN(5)] }

func (c *chaos) shell(host, script string) error {
	_, err := c.n.Lab.Host(host).Run(c.ctx, "sh", "-ec", script)
	return err
}

// newAddress is a script that gives a host another address of its LAN.
func newAddress(last int) string {
	return strings.NewReplacer("LAST", fmt.Sprint(last)).Replace(`
		gw=$(ip -4 route show default | sed 's/.*via \([^ ]*\).*/\1/')
		old=$(ip -4 -o addr show dev eth0 | sed 's/.*inet \([^ ]*\).*/\1/')
		ip addr del "$old" dev eth0
		ip addr add "${old%.*}.LAST/${old#*/}" dev eth0
		ip route replace default via "$gw"`)
}

// recovered returns how long it took until all hosts had reached all others, and
// which pair was last.
func (c *chaos) recovered() (took time.Duration, last string) {
	began := time.Now()
	var pairs sync.WaitGroup
	var mu sync.Mutex
	hosts := c.n.Lab.Hosts()
	for _, from := range hosts {
		for _, to := range hosts {
			if from == to || c.n.Daemon(from.Name) == nil || c.n.Daemon(to.Name) == nil {
				continue
			}
			pairs.Go(func() {
				for time.Since(began) <= chaosLimit && c.ctx.Err() == nil {
					if _, err := from.Run(c.ctx, "ping", "-c1", "-W1", to.Name); err == nil {
						break
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if d := time.Since(began); d > took {
					took, last = d, from.Name+" to "+to.Name
				}
			})
		}
	}
	pairs.Wait()
	return took, last
}
