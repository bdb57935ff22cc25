package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// sharing is the record of one run of shares.
type sharing struct {
	begin time.Time // when job 1 ought to begin
	phase time.Duration
	second
	all   arrivals
	nodes []arrivals // in sharesSenders' order
	lost  uint64     // at the uplink
	spans []span     // of the phases
}

// span is a phase as it came: from its change until just before the next one.
type span struct{ from, till int64 }

// at is when a phase ought to begin.
func (r *sharing) at(phase int) time.Time { return r.begin.Add(time.Duration(phase) * r.phase) }

// sort tells whose frames are whose, and finds the changes.
func (r *sharing) sort(noted []lab.Arrival, c *commons) error {
	r.all = choose(noted, func(lab.Arrival) bool { return true })
	for _, s := range sharesSenders(r.second) {
		from := c.net.Lab.Host(s.name).Addr4
		r.nodes = append(r.nodes, choose(noted, func(a lab.Arrival) bool { return a.From.Addr() == from && slices.Contains(c.far, a.To.Addr()) }))
	}
	return r.findChanges()
}

// findChanges notes when phases really begin and end. A job's program looks at the
// clock, but what it has under way then is still sent.
func (r *sharing) findChanges() error {
	const early = 20 * time.Millisecond // no program is earlier
	r.spans = make([]span, sharesPhases)
	for p := range sharesPhases {
		due := r.at(p).UnixNano()
		r.spans[p] = span{due, r.at(p + 1).UnixNano()}
		for i, s := range sharesSenders(r.second) {
			near := r.nodes[i].between(due-int64(early), r.at(p+1).UnixNano())
			at := int64(0)
			switch p {
			case s.from:
				if at = near.begins(sharesFull, sharesStream, sharesAverage); at == 0 {
					return fmt.Errorf("%s has not begun to send in phase %d", s.name, p+1)
				}
			case s.till:
				at = near.ends(sharesFull, sharesStream, sharesAverage)
			}
			r.spans[p].from = max(r.spans[p].from, at)
		}
		if r.spans[p].till-r.spans[p].from < int64(2*sharesSteady) {
			return fmt.Errorf("phase %d began %v late, too late to judge it: who ought to end had not, because something else keeps the processors busy or the link did not serve it",
				p+1, time.Duration(r.spans[p].from-due).Round(time.Millisecond))
		}
	}
	return nil
}

// sending lists the senders of a phase, and what each ought to have, b/s.
func (r *sharing) sending(phase int) (who []int, ought []float64) {
	var claims []claim
	for i, s := range sharesSenders(r.second) {
		if s.from <= phase && phase < s.till {
			who, claims = append(who, i), append(claims, s.claim)
		}
	}
	return who, maxmin(sharesRate, sharesRate/siteRanks, claims)
}

// judged is what a phase came to.
type judged struct {
	who     []int
	ought   []float64
	have    []float64 // of who, b/s
	close   float64   // share of the averages that are within bounds
	settled float64   // ms, of the slowest; infinite if one does not
	queue   float64   // bytes
}

func (r *sharing) judge(phase int) (j judged) {
	s := r.spans[phase]
	steady := s.from + int64(sharesSteady)
	j.who, j.ought = r.sending(phase)
	j.queue = r.all.between(s.from, s.till).backlog(sharesRate)
	good, n := 0, 0
	for k, i := range j.who {
		sent := r.nodes[i].between(steady, s.till)
		j.have = append(j.have, float64(sent.bytes())*8e9/float64(s.till-steady))
		// The average trails, so it begins with what was before the change.
		whole := trailing(r.nodes[i].bins(s.from-int64(sharesAverage), s.till, time.Millisecond), int(sharesAverage/time.Millisecond))
		averages := whole[sharesAverage/time.Millisecond:]
		for _, v := range averages[sharesSteady/time.Millisecond:] {
			if n++; within(v, j.ought[k], sharesClose) {
				good++
			}
		}
		after := math.Inf(1)
		if at := settled(averages, j.ought[k], sharesClose, int(sharesHold/time.Millisecond)); at >= 0 {
			after = float64(at + 1) // a value is known at the end of its millisecond
		}
		j.settled = math.Max(j.settled, after)
	}
	j.close = float64(good) / float64(max(n, 1))
	return j
}

// never is a time in ms as tables have it.
func never(ms float64) string {
	if math.IsInf(ms, 1) {
		return "never"
	}
	return fmt.Sprintf("%.0f", ms)
}

// rounds are runs of the same.
type rounds []*sharing

// merged is what a phase came to in all rounds.
type merged struct {
	judged         // means, and the median of how long it took to settle
	took   sample  // to settle, in each, ms, the quickest first
	off    float64 // the farthest from what it ought to have that a sender was, as a part of that
	offBy  string  // which one
}

func (rs rounds) judge(phase int) (m merged) {
	for _, r := range rs {
		j := r.judge(phase)
		m.who, m.ought = j.who, j.ought
		if m.have == nil {
			m.have = make([]float64, len(j.who))
		}
		for k, i := range j.who {
			m.have[k] += j.have[k] / float64(len(rs))
			if d := math.Abs(j.have[k]/j.ought[k] - 1); d > m.off {
				m.off, m.offBy = d, sharesSenders(r.second)[i].name
			}
		}
		m.close += j.close / float64(len(rs))
		m.queue = math.Max(m.queue, j.queue)
		m.took = append(m.took, j.settled)
	}
	slices.Sort(m.took)
	m.settled = m.took[len(m.took)/2]
	return m
}

func (rs rounds) rows() (rows [][]string) {
	for p := range sharesPhases {
		m := rs.judge(p)
		ought, have := []string{"–", "–", "–", "–"}, []string{"–", "–", "–", "–"}
		for k, i := range m.who {
			ought[i], have[i] = fmt.Sprintf("%.1f", m.ought[k]/1e6), fmt.Sprintf("%.1f", m.have[k]/1e6)
		}
		var each []string
		for _, r := range rs {
			each = append(each, never(r.judge(p).settled))
		}
		rows = append(rows, []string{rs[0].says, fmt.Sprint(p + 1), strings.Join(ought, ", "), strings.Join(have, ", "),
			fmt.Sprintf("%.1f", 100*m.close), never(m.settled), strings.Join(each, ", "), fmt.Sprintf("%.1f", m.queue/1e3)})
	}
	return rows
}

func (rs rounds) verdicts() []Verdict {
	off, slowest, worst, deepest, lost, fast := 0.0, 0.0, 0.0, 0.0, uint64(0), 0
	offAt, slowestAt := "", 0
	name, limit := "job 2 "+rs[0].says, milliseconds(sharesSettle)
	for p := range sharesPhases {
		m := rs.judge(p)
		if m.off > off {
			off, offAt = m.off, fmt.Sprintf("%s in phase %d", m.offBy, p+1)
		}
		if p > 0 { // phase 1 begins with nobody's share
			if m.settled > slowest {
				slowest, slowestAt = m.settled, p+1
			}
			worst = math.Max(worst, m.took[len(m.took)-1])
			for _, ms := range m.took {
				if ms <= limit {
					fast++
				}
			}
		}
		deepest = math.Max(deepest, m.queue)
	}
	for _, r := range rs {
		lost += r.lost
	}
	return []Verdict{
		{off <= sharesClose, fmt.Sprintf("%s: shares are off max–min by %.1f %% at most (%s); wanted is %.0f %%", name, 100*off, offAt, 100*sharesClose)},
		{worst <= limit, fmt.Sprintf("%s: the slowest change of all rounds has settled after %s ms; wanted are %.0f; %d of %d were as fast", name, never(worst), limit, fast, len(rs)*(sharesPhases-1))},
		{slowest <= limit, fmt.Sprintf("%s: in the median of %d rounds the slowest change (to phase %d) has settled after %s ms; wanted are %.0f", name, len(rs), slowestAt, never(slowest), limit)},
		{deepest <= sharesQueue && lost == 0, fmt.Sprintf("%s: the sum exceeds the rate by %.1f kB at most and %d packets were lost; the queue holds %d kB", name, deepest/1e3, lost, sharesQueue/1000)},
	}
}

// draw plots the run, and two changes by the millisecond.
func (r *sharing) draw() plot {
	zero, end := r.spans[0].from, r.spans[sharesPhases-1].till
	seconds := func(at int64) float64 { return float64(at-zero) / 1e9 }
	labels := []string{"a1, job 1", "a2, job 1", "a3, job 2", "a4, iperf3"}
	lines := func(from, till int64, average, every int) (all []line) {
		for i, a := range append(slices.Clone(r.nodes), r.all) {
			l := line{name: "all", look: area}
			if i < len(labels) {
				l.name, l.look = labels[i], step
			}
			for k, v := range trailing(a.bins(from, till, time.Millisecond), average) {
				if k%every == 0 {
					l.x, l.y = append(l.x, seconds(from+int64(k)*1e6)), append(l.y, v/1e6)
				}
			}
			all = append(all, l)
		}
		return all
	}
	fair := line{name: "max–min share", look: dash}
	for p, s := range r.spans {
		_, ought := r.sending(p)
		fair.x, fair.y = append(fair.x, seconds(s.from)), append(fair.y, slices.Max(ought)/1e6)
	}
	fair.x, fair.y = append(fair.x, seconds(end)), append(fair.y, fair.y[len(fair.y)-1])
	changes := []string{"job 1", "iperf3 begins", "job 2 begins", "iperf3 ends", "job 1 ends"}
	whole := panel{y: "Mb/s, mean of 20 ms", top: 1.15 * sharesRate / 1e6, lines: append(lines(zero-int64(200*time.Millisecond), end, 20, 5), fair)}
	for p, s := range r.spans {
		whole.marks = append(whole.marks, moment{seconds(s.from), changes[p]})
	}
	drawing := plot{title: "Four nodes share 100 Mb/s", x: "seconds since job 1 began", panels: []panel{whole}}
	for _, p := range []int{1, 3} {
		at := r.spans[p].from
		part := lines(at-int64(60*time.Millisecond), at+int64(140*time.Millisecond), 1, 1)
		drawing.panels = append(drawing.panels, panel{y: "Mb/s, of each ms", own: true, top: 1.5 * sharesRate / 1e6,
			lines: part, marks: []moment{{seconds(at), changes[p]}}})
	}
	return drawing
}
