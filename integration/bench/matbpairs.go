package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// pairs compares live shares with static ones and with none, job by job: a network of
// each is up, and they take turns in an order that is drawn for each round.
func (m *matbRun) pairs(ctx context.Context, t *Table) {
	s := m.plan.pairAt
	c := &crossing{setting: s, cells: map[string]map[topic]cell{}, pains: map[string]suffering{}}
	var nets []*narrow
	defer func() {
		for _, n := range nets {
			n.close()
		}
	}()
	for _, w := range waysNamed(unpaced, static, lived) {
		n, err := newNarrow(ctx, m.env, s, w, w.file(s)+"-pairs")
		if err != nil {
			t.Verdicts = append(t.Verdicts, Verdict{false, fmt.Sprintf("%v: pairs are measured; not so: %v", s, err)})
			return
		}
		nets = append(nets, n)
		c.cells[w.name] = map[topic]cell{}
	}
	rng := rand.New(rand.NewPCG(1, 4)) // the same order in each run
	loads := m.chosen(m.plan.paired)
	for round := range m.plan.pairs {
		for _, l := range loads {
			rng.Shuffle(len(nets), func(i, j int) { nets[i], nets[j] = nets[j], nets[i] })
			m.once(ctx, c, l, nets, round)
			if ctx.Err() != nil {
				break
			}
		}
		if ctx.Err() != nil {
			break
		}
		m.env.say("matb: %v: pairs: %d of %d rounds", s, round+1, m.plan.pairs)
	}
	for _, l := range loads {
		for _, w := range l.brief {
			c.topics = append(c.topics, topic{l.name, w})
		}
	}
	part, verdicts := c.pairsPart()
	t.Parts, t.Verdicts = append(t.Parts, part), append(t.Verdicts, verdicts...)
}

// once runs a load once in each network. A round counts if all its jobs end well.
func (m *matbRun) once(ctx context.Context, c *crossing, l *load, nets []*narrow, round int) {
	all := map[string]map[what]reading{}
	for _, n := range nets {
		got, err := l.once(ctx, n)
		if err != nil {
			if ctx.Err() == nil {
				c.fail(m.env, fmt.Sprintf("pair %d of %s: %s", round+1, l.name, n.way.name), err)
			}
			return
		}
		all[n.way.name] = got
	}
	for way, got := range all {
		for w, r := range got {
			t := topic{l.name, w}
			c.cells[way][t] = append(c.cells[way][t], r)
		}
	}
}

// pairsPart is the comparison, and what is promised of it.
func (c *crossing) pairsPart() (Part, []Verdict) {
	p := Part{Title: fmt.Sprintf("%v: live shares beside static ones and none, in pairs", c.setting),
		Text: "The three take turns in an order drawn for each round; ratios of times are geometric means over pairs with a 95 % interval (bootstrap over pairs, 4000 times).",
		Head: []string{"program", "pairs", "live shares, ms", "static B/N, ms", "live ÷ static", "unpaced, ms", "live ÷ unpaced"}}
	var k checks
	for _, t := range c.topics {
		live := c.cells[lived][t].times()
		row := []string{t.String(), fmt.Sprint(len(live)), live.milli().spread("%.1f")}
		for _, by := range []string{static, unpaced} {
			other := c.cells[by][t].times()
			mean, low, high := pairedInterval(live.over(other))
			row = append(row, other.milli().spread("%.1f"), fmt.Sprintf("%.3f (%.3f–%.3f)", mean, low, high))
			k.add(high <= matbWorse, "%v ÷ %s %.3f (%.3f–%.3f)", t, by, mean, low, high)
		}
		p.Rows = append(p.Rows, row)
	}
	verdicts := k.verdict("%v: live shares are no more than %.0f %% slower than static ones and than none, by the upper end of the 95 %% interval; all must", c.setting, 100*(matbWorse-1))
	if len(c.failed) > 0 {
		verdicts = append(verdicts, Verdict{false, fmt.Sprintf("%v: all jobs of the pairs end; %d did not: %s", c.setting, len(c.failed), c.failed[0])})
	}
	return p, verdicts
}

// pairedInterval is the geometric mean of ratios, and its 95 % interval by drawing
// as many of them anew, again and again; NaN of none. The same ratios have the same
// interval.
func pairedInterval(ratios sample) (mean, low, high float64) {
	if len(ratios) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	logs := make(sample, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	rng := rand.New(rand.NewPCG(9, 5))
	means := make(sample, resamplings)
	for i := range means {
		for range logs {
			means[i] += logs[rng.IntN(len(logs))] / float64(len(logs))
		}
	}
	slices.Sort(means)
	return math.Exp(logs.mean()), math.Exp(means[resamplings*25/1000]), math.Exp(means[resamplings*975/1000])
}
