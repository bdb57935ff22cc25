package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// timesPart is what all ways took.
func timesPart(all []*crossing, ways []way) Part {
	p := Part{Title: all[0].link() + ": times, ms (÷ oracle)", Head: []string{"delay", "program"}}
	for _, w := range ways {
		p.Head = append(p.Head, w.name)
	}
	if len(linksOf(all)) > 1 {
		p.Title, p.Head[0] = strings.Join(linksOf(all), "; ")+": times, ms (÷ oracle)", "link"
	}
	for _, c := range all {
		for _, t := range c.topics {
			row := []string{c.label(all), t.String()}
			for _, w := range ways {
				row = append(row, c.timeCell(w.name, t))
			}
			p.Rows = append(p.Rows, row)
		}
	}
	return p
}

// linksOf are the different links of crossings.
func linksOf(all []*crossing) (links []string) {
	for _, c := range all {
		if !slices.Contains(links, c.link()) {
			links = append(links, c.link())
		}
	}
	return links
}

// label names a crossing among others.
func (c *crossing) label(all []*crossing) string {
	if len(linksOf(all)) > 1 {
		return c.setting.String()
	}
	return c.delay.String()
}

// timeCell is a time and its ratio to the oracle's; "–" of a job that did not end.
func (c *crossing) timeCell(way string, t topic) string {
	own := c.cells[way][t].times()
	if len(own) == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.1f", own.median()/1e3)
	if r, ok := c.ratio(t, way, oracle); ok && way != oracle {
		text += fmt.Sprintf(" (%.2f)", r)
	}
	return text
}

// ratio is a way's median time by another's, if there are both.
func (c *crossing) ratio(t topic, way, by string) (float64, bool) {
	own, other := c.cells[way][t].times(), c.cells[by][t].times()
	if len(own) == 0 || len(other) == 0 {
		return 0, false
	}
	return own.median() / other.median(), true
}

// countersPart is what happened meanwhile, over all programs.
func countersPart(all []*crossing, ways []way) Part {
	p := Part{Title: strings.Join(linksOf(all), "; ") + ": what happened meanwhile",
		Head: []string{"link", "way", "sent again", "of these needless", "time-outs", "of these spurious", "probes", "lost at the uplinks", "dropped by who paces"}}
	var largest []topic
	for _, t := range all[0].topics {
		if t.load == loadAlltoall {
			largest = append(largest, t)
			p.Head = append(p.Head, "used, "+t.String())
		}
	}
	late := 0.0
	for _, c := range all {
		for _, w := range ways {
			late += c.pains[w.name].late
			pain, there := c.pains[w.name]
			if !there {
				continue
			}
			row := []string{c.setting.String(), w.name}
			for _, n := range []float64{pain.retransmitted, pain.needless, pain.timeouts, pain.spurious, pain.probes, pain.dropped, pain.own} {
				row = append(row, fmt.Sprintf("%.0f", n))
			}
			for _, t := range largest {
				row = append(row, share(c.cells[w.name][t].used()))
			}
			p.Rows = append(p.Rows, row)
		}
	}
	if late > 0 {
		p.Text = fmt.Sprintf("At %.0f marks counters were read late, since the machine was busy: some of what happened there is not counted, or with something else.", late)
	}
	return p
}

// share is a share of a whole, "–" if nobody knows it.
func share(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// checks gathers what holds of many, and names what does not.
type checks struct {
	n      int
	missed []string
}

func (k *checks) add(good bool, format string, args ...any) {
	k.n++
	if !good {
		k.missed = append(k.missed, fmt.Sprintf(format, args...))
	}
}

// verdict is none if nothing was checked.
func (k checks) verdict(format string, args ...any) []Verdict {
	if k.n == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of %d ", k.n-len(k.missed), k.n) + fmt.Sprintf(format, args...)
	if len(k.missed) > 0 {
		text += "; not so: " + strings.Join(k.missed, ", ")
	}
	return []Verdict{{len(k.missed) == 0, text}}
}

// judge checks what is promised up to the gate's rate and of cubic; elsewhere only that
// jobs end.
func (c *crossing) judge() (all []Verdict) {
	if len(c.failed) > 0 {
		all = append(all, Verdict{false, fmt.Sprintf("%v: all jobs end; not so: %s", c.setting, strings.Join(c.failed, "; "))})
	}
	if c.rate > matbGate || c.tcp != "cubic" {
		return all
	}
	var near, used, fast, ahead, bound checks
	for _, t := range c.topics {
		live := c.cells[lived][t]
		if t.load == loadGo && len(live) > 0 {
			least := c.bound(t.bytes)
			bound.add(live.times().median() <= matbBound*least, "%v %.2f", t, live.times().median()/least)
		}
		if t.load != loadAlltoall {
			continue
		}
		if r, ok := c.ratio(t, lived, oracle); ok {
			near.add(r <= matbOracle, "%v %.2f", t, r)
			if best := c.cells[oracle][t].used(); best >= matbUsed {
				used.add(live.used() >= matbUsed, "%v %.2f", t, live.used())
			}
		}
		if r, ok := c.ratio(t, unpaced, lived); ok && c.cells[unpaced][t].pain().timeouts > 0 {
			best, _ := c.ratio(t, unpaced, oracle)
			fast.add(r >= matbFaster, "%v %.2f (the oracle %.2f)", t, r, best)
		}
		if r, ok := c.ratio(t, lived, htb); ok {
			ahead.add(r < 1, "%v %.2f", t, r)
		}
	}
	name := c.setting.String()
	all = append(all, near.verdict("%s: live shares take at most %.2f of the oracle's time in all-to-alls; all must", name, matbOracle)...)
	all = append(all, used.verdict("%s: live shares use at least %.2f of the uplinks in all-to-alls in which the oracle does; all must", name, matbUsed)...)
	all = append(all, fast.verdict("%s: live shares are at least %.0f times as fast as unpaced in all-to-alls in which that times out; all must", name, matbFaster)...)
	all = append(all, ahead.verdict("%s: live shares are ahead of htb in all-to-alls; all must", name)...)
	all = append(all, bound.verdict("%s: all-to-alls of Go take at most %.2f of bytes / B + delay; all must", name, matbBound)...)
	return append(all, c.judgeLosses()...)
}

// bound is the least time of an all-to-all, in µs: what a site has for the other by
// the uplink's bare rate, and the delay.
func (c *crossing) bound(bytes int) float64 {
	return float64(siteRanks*siteRanks*bytes)*8e6/float64(c.rate) + float64(c.delay)/float64(time.Microsecond)
}

func (c *crossing) judgeLosses() []Verdict {
	without, ok1 := c.pains[unpaced]
	with, ok2 := c.pains[lived]
	if !ok1 || !ok2 {
		return nil
	}
	again := with.retransmitted + with.own
	late, lateWithout, best := c.anyPain(lived), c.anyPain(unpaced), c.anyPain(oracle)
	return []Verdict{
		{late.timeouts <= late.spurious, fmt.Sprintf("%v: live shares leave %.0f time-outs, %.0f of them spurious, unpaced %.0f and %.0f, the oracle %.0f and %.0f; none is wanted that is not spurious",
			c.setting, late.timeouts, late.spurious, lateWithout.timeouts, lateWithout.spurious, best.timeouts, best.spurious)},
		{without.retransmitted >= matbFewer*again, fmt.Sprintf("%v: live shares leave %.0f segments sent again, %.0f of them needless, and %.0f drops of our own where unpaced has %.0f, %.0f and %.0f; %.0f times fewer are wanted",
			c.setting, with.retransmitted, with.needless, with.own, without.retransmitted, without.needless, without.own, matbFewer)},
	}
}

// anyPain is that of all jobs of a way.
func (c *crossing) anyPain(way string) (sum suffering) {
	for _, cell := range c.cells[way] {
		sum = sum.plus(cell.pain())
	}
	return sum
}
