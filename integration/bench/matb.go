package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What pacing promises of programs over a link with a small queue.
const (
	matbGate   = 100_000_000 // bits per second of each site's uplink up to which promises are made
	matbSlow   = 20_000_000  // where the lab's processors are not what limits it
	matbQueue  = 64_000      // bytes that wait for it; then packets are lost
	matbOracle = 1.10        // of the time over a queue without end, at most
	matbUsed   = 0.95        // of the uplinks, at least, where the oracle uses as much
	matbFaster = 3.0         // times as fast as unpaced at least, where that times out
	matbFewer  = 20.0        // times fewer lost and retransmitted packets, at least
	matbBound  = 1.25        // of bytes / B + delay, at most, for MPI for Go
	matbWorse  = 1.03        // of the time of static shares and of unpaced, at most
	matbWithin = 3 * time.Minute
)

// setting is a link and the algorithm of who sends over it.
type setting struct {
	rate  int64 // bits per second
	delay time.Duration
	tcp   string
}

func (s setting) String() string { return fmt.Sprintf("%s, %v", s.link(), s.delay) }

// link is what settings of one table have alike.
func (s setting) link() string { return fmt.Sprintf("%d Mb/s, %s", s.rate/1_000_000, s.tcp) }

// sweep is what is measured at each of some settings.
type sweep struct {
	settings []setting
	ways     []way
	loads    []string
	rivals   []string // loads of the ways that others invented; nil: the same
}

// of are the loads of one way.
func (s sweep) of(w way) []string {
	if w.outside != nil && s.rivals != nil {
		return s.rivals
	}
	return s.loads
}

// matbPlan is what a run measures.
type matbPlan struct {
	sweeps []sweep
	pairs  int // of jobs, each way; 0: none
	pairAt setting
	paired []string // loads
	plots  bool
	rounds int
	again  int   // further rounds of the all-to-alls, of the ways that are set beside each other
	sizes  []int // between each two ranks, for the all-to-alls
}

// product lists the settings of rates × algorithms × delays.
func product(rates []int64, tcps []string, delays []time.Duration) (all []setting) {
	for _, rate := range rates {
		for _, tcp := range tcps {
			for _, delay := range delays {
				all = append(all, setting{rate, delay, tcp})
			}
		}
	}
	return all
}

// planMATB is what a run measures unless it is told.
func planMATB(quick bool) matbPlan {
	const ms = time.Millisecond
	delays := []time.Duration{0, 2 * ms, 5 * ms, 10 * ms}
	p := matbPlan{pairs: 20, pairAt: setting{matbGate, 2 * ms, "cubic"}, paired: loadNames(), plots: true, rounds: 1, again: 4,
		sizes: []int{4 << 10, 16 << 10, 128 << 10, 1 << 20}}
	p.sweeps = []sweep{{product([]int64{matbGate}, []string{"cubic"}, delays), ways(), loadNames(), nil}}
	if quick {
		p.pairs, p.again, p.sizes, p.paired = 3, 1, []int{16 << 10, 128 << 10}, []string{loadAlltoall, loadCG}
		p.sweeps = []sweep{{product([]int64{matbGate}, []string{"cubic"}, delays[1:2]), ways(), loadNames(), []string{loadAlltoall}}}
	}
	return p
}

// planFast is the plan of what is reported beside the gate: four times its rate, and TCP
// bbr.
func planFast(quick bool) matbPlan {
	const ms = time.Millisecond
	p := matbPlan{rounds: 1, sizes: []int{16 << 10, 128 << 10, 1 << 20}}
	ways := waysNamed(unpaced, htb, static, lived, oracle)
	fast, bbr := product([]int64{4 * matbGate}, []string{"cubic"}, []time.Duration{0, 2 * ms, 10 * ms}), product([]int64{matbGate}, []string{"bbr"}, []time.Duration{0, 2 * ms, 10 * ms})
	loads := []string{loadAlltoall, loadCG, loadLU}
	if quick {
		ways, p.sizes, fast, bbr, loads = waysNamed(lived), p.sizes[:2], nil, product([]int64{4 * matbGate}, []string{"bbr"}, []time.Duration{2 * ms}), loads[:1]
	}
	for _, s := range [][]setting{fast, bbr} {
		if len(s) > 0 {
			p.sweeps = append(p.sweeps, sweep{s, ways, loads, nil})
		}
	}
	return p
}

// planSlow is the plan of a fifth of the gate's rate: the same packets in five times the
// time.
func planSlow(quick bool) matbPlan {
	const ms = time.Millisecond
	p := matbPlan{pairs: 10, pairAt: setting{matbSlow, 10 * ms, "cubic"}, paired: loadNames(), rounds: 1, sizes: []int{4 << 10, 16 << 10, 128 << 10}}
	delays := []time.Duration{0, 10 * ms, 50 * ms}
	if quick {
		p.pairs, p.sizes, p.paired, delays = 3, []int{16 << 10, 128 << 10}, []string{loadAlltoall, loadLU}, delays[1:2]
	}
	p.sweeps = []sweep{{product([]int64{matbSlow}, []string{"cubic"}, delays), ways(), loadNames(), nil}}
	return p
}

// matbChoices are what can be chosen of a plan.
var matbChoices = []string{"delays", "rates", "tcp", "programs", "ways", "parts"}

// choose narrows a plan down to what is asked for. If rates, delays or algorithms are
// named, all that is named is measured at each of them.
func (p matbPlan) choose(with Choices) (matbPlan, error) {
	first := p.sweeps[0]
	delays, err1 := listed(with, "delays", delaysOf(first.settings), time.ParseDuration)
	rates, err2 := with.rates([]int64{first.settings[0].rate})
	tcps, err3 := listed(with, "tcp", []string{"cubic"}, oneOf("cubic", "bbr", "reno"))
	loads, err4 := listed(with, "programs", nil, oneOf(loadNames()...))
	named, err5 := listed(with, "ways", nil, oneOf(wayNames()...))
	parts, err6 := listed(with, "parts", []string{"cells", "again", "pairs", "plots"}, oneOf("cells", "again", "pairs", "plots"))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return p, err
	}
	if with["delays"]+with["rates"]+with["tcp"] != "" {
		first.settings = product(rates, tcps, delays)
		p.sweeps, p.pairAt = []sweep{first}, first.settings[0]
	}
	for i := range p.sweeps {
		p.sweeps[i].loads = narrowed(p.sweeps[i].loads, loads)
		if len(loads) > 0 {
			p.sweeps[i].rivals = nil // what is asked for is for all
		}
		if len(named) > 0 {
			p.sweeps[i].ways = waysNamed(named...)
		}
	}
	p.paired = narrowed(p.paired, loads)
	if p.plots = slices.Contains(parts, "plots"); !slices.Contains(parts, "pairs") {
		p.pairs = 0
	}
	if !slices.Contains(parts, "again") {
		p.again = 0
	}
	if !slices.Contains(parts, "cells") {
		p.sweeps = nil
	}
	return p, nil
}

// narrowed are the words of all that are wanted; all if nothing is.
func narrowed(all, wanted []string) (some []string) {
	if len(wanted) == 0 {
		return all
	}
	for _, w := range all {
		if slices.Contains(wanted, w) {
			some = append(some, w)
		}
	}
	return some
}

func delaysOf(settings []setting) (all []time.Duration) {
	for _, s := range settings {
		if !slices.Contains(all, s.delay) {
			all = append(all, s.delay)
		}
	}
	return all
}

// matb has programs cross a narrow uplink.
func matb(ctx context.Context, env *Env) (Table, error) {
	return crossNarrow(ctx, env, planMATB(env.Quick), Table{Title: "Programs over a narrow link, paced and not"}, matbMethod)
}

// matbfast has them cross a faster one, and with another TCP.
func matbfast(ctx context.Context, env *Env) (Table, error) {
	return crossNarrow(ctx, env, planFast(env.Quick), Table{Title: "The same at four times the rate, and with TCP bbr"}, func(matbPlan) string {
		return "Nothing is promised of these. At 400 Mb/s what the nine daemons, the eight ranks and the emulated network take of this machine's processors is what limits the oracle too. The rest is as above."
	})
}

// matbslow has them cross one so narrow that the lab keeps up.
func matbslow(ctx context.Context, env *Env) (Table, error) {
	return crossNarrow(ctx, env, planSlow(env.Quick), Table{Title: "The same where the lab's processors keep up"}, func(matbPlan) string {
		return "A fifth of the rate is five times the time for each packet: what the nine daemons, the eight ranks, which spin, and the emulated network take of this machine's processors counts for a fifth of what it does above, " +
			"and what is left is how well the link is shared. There is one job of each; the rest is as there."
	})
}

// crossNarrow measures what is asked for of a plan, and adds it to a table.
func crossNarrow(ctx context.Context, env *Env, plan matbPlan, t Table, method func(matbPlan) string) (Table, error) {
	plan, err := plan.choose(env.With)
	if err != nil {
		return Table{}, err
	}
	if err := needPrograms(map[string]string{"mpicc.openmpi": "libopenmpi-dev", "mpirun.openmpi": "openmpi-bin", "hpcc": "hpcc"}); err != nil {
		return Table{}, err
	}
	m := &matbRun{env: env, plan: plan}
	if m.loads, err = newLoads(ctx, env, plan.sizes, env.Quick); err != nil {
		return Table{}, err
	}
	restore, err := allowCubic("bbr", "reno")
	if err != nil {
		return Table{}, err
	}
	defer restore()
	t.Method = method(plan) + " " + env.insideSites()
	for _, s := range plan.sweeps {
		m.sweep(ctx, s, &t)
	}
	if plan.pairs > 0 && ctx.Err() == nil {
		m.pairs(ctx, &t)
	}
	if ctx.Err() != nil {
		t.Method += " This run was interrupted: the tables have what was measured until then."
	}
	if len(t.Parts) == 0 {
		return t, errors.Join(errors.New("nothing was measured"), ctx.Err())
	}
	return t, nil
}

func matbMethod(p matbPlan) string {
	return fmt.Sprintf("Two sites of %d hosts behind NATs that keep ports, a rank on each, started by meshrun, Open MPI with mpi_yield_when_idle, and Go with GOMAXPROCS=1, since they and nine daemons share the machine's processors. "+
		"Each site's uplink has the rate and the delay, one way, and a drop-tail queue of %d kB; downlinks are free. "+
		"alltoall is MPI_Alltoall in a loop, with the bytes between each two ranks (c/colls.c of integration/programs); CG solves a system by conjugate gradients with the traffic of NPB's, in which half the nodes send 256 KiB "+
		"across at a time (c/cg.c, a step); LU sweeps in pipelined wavefronts of 1280 B (c/lu.c, there and back over 64 planes); PTRANS, FFT and RandomAccess are Debian's hpcc, stopped after these; Go alltoall is MPI for Go's (go/colls). "+
		"%d job(s) of each, milliseconds, and how many times the oracle's; here, of both all-to-alls under htb, live shares and the oracle, which are judged beside each other, the median of these and %d more, in turns, whose time-outs the verdicts count, too. Unpaced: nothing is declared. "+
		"Timer token bucket: unpaced overlay, and in each host's way out of the LAN a bucket at B/N, of 10 ms, on a Go ticker of 1 ms (go/bucket). htb: unpaced overlay, and htb at B/N on each host's Ethernet link for what leaves the LAN, "+
		"with a leaf (tbf) that splits GSO's superpackets into two datagrams at most. Static shares are of --pace static with meshrun --no-hints, and with the preload library's hints; live shares are the default. "+
		"The oracle is unpaced over a queue of 256 MiB: over so long a queue TCP's round trips grow faster than its timers learn, so it has time-outs that nothing was lost for (spurious). "+
		"Counters are sums over all eight hosts while programs are measured, without their start (between marks that they print, hpcc's sections): segments sent again (RetransSegs), of these needless what the other end had already (TCPDSACKRecvSegs), most often a tail-loss probe; retransmission time-outs, in all states of TCP's recovery "+
		"(TCPTimeouts, TCPLossFailures, TCPSackFailures, TCPSackRecoveryFail and Reno's), of these spurious those that TCP took back (TCPLossUndo); tail-loss probes, which are no time-outs; packets lost at the uplinks; and dropped before them by who paces. "+
		"Used is what crossed both uplinks by what could have in that time.", siteRanks, matbQueue/1000, p.rounds, p.again)
}
