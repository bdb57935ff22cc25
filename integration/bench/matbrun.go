package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/wan"
)

// matbRun is a run of matb.
type matbRun struct {
	env   *Env
	plan  matbPlan
	loads []*load
}

// reading is what one job says of one thing.
type reading struct {
	us   float64
	pain suffering // while it was measured
}

// cell is all readings of one thing in one way.
type cell []reading

func (c cell) times() (s sample) {
	for _, r := range c {
		s = append(s, r.us)
	}
	return s
}

// used is the share of the uplinks that was used; NaN if its bytes were never counted in time.
func (c cell) used() float64 {
	var s sample
	for _, r := range c {
		if r.pain.late == 0 {
			s = append(s, r.pain.used())
		}
	}
	return s.median()
}

// pain is that of all readings.
func (c cell) pain() (sum suffering) {
	for _, r := range c {
		sum = sum.plus(r.pain)
	}
	return sum
}

// topic is one thing that one load tells.
type topic struct {
	load string
	what
}

// String names it in tables.
func (t topic) String() string {
	switch t.load {
	case loadAlltoall:
		return "alltoall, " + size(t.bytes)
	case loadGo:
		return "Go alltoall, " + size(t.bytes)
	case loadHPCC:
		return t.name
	}
	return strings.ToUpper(t.load)
}

// crossing is all ways at one setting.
type crossing struct {
	setting
	topics []topic
	cells  map[string]map[topic]cell // by way
	pains  map[string]suffering      // over the jobs that every way has run
	failed []string                  // jobs that did not end well
}

// sweep measures at each of some settings and adds to the table.
func (m *matbRun) sweep(ctx context.Context, s sweep, t *Table) {
	var all []*crossing
	for _, set := range s.settings {
		if ctx.Err() != nil {
			break
		}
		c := &crossing{setting: set, cells: map[string]map[topic]cell{}, pains: map[string]suffering{}}
		for _, l := range m.chosen(s.loads) {
			for _, w := range l.figures {
				c.topics = append(c.topics, topic{l.name, w})
			}
		}
		records := map[string]*wan.Record{}
		for i, w := range s.ways {
			m.env.say("matb: %v: %s (%d of %d)", set, w.name, i+1, len(s.ways))
			r, err := m.measure(ctx, c, w, m.chosen(s.of(w)))
			if err != nil && ctx.Err() == nil {
				c.fail(m.env, w.name, err)
			}
			if r != nil {
				records[w.name] = r
			}
		}
		m.again(ctx, c, s)
		t.Drawings = append(t.Drawings, c.drawing(records)...)
		all = append(all, c)
	}
	m.report(all, s.ways, t)
}

// report adds what was measured to the table, and judges what promises are made for.
func (m *matbRun) report(all []*crossing, ways []way, t *Table) {
	if len(all) > 0 {
		t.Parts = append(t.Parts, timesPart(all, ways), countersPart(all, ways))
		for _, c := range all {
			t.Verdicts = append(t.Verdicts, c.judge()...)
		}
	}
}

// fail notes what went wrong, so that the rest is not lost.
func (c *crossing) fail(env *Env, what string, err error) {
	first, _, _ := strings.Cut(err.Error(), "\n")
	c.failed = append(c.failed, what+": "+first)
	env.say("matb: %v: %s: %v", c.setting, what, err)
}

func (m *matbRun) chosen(names []string) (all []*load) {
	for _, l := range m.loads {
		if slices.Contains(names, l.name) {
			all = append(all, l)
		}
	}
	return all
}

// measure runs the jobs of one way on a network of its own. It returns what crossed
// the first uplink in a moment of an all-to-all, if there will be a plot.
func (m *matbRun) measure(ctx context.Context, c *crossing, w way, loads []*load) (*wan.Record, error) {
	n, err := newNarrow(ctx, m.env, c.setting, w, w.file(c.setting))
	if err != nil {
		return nil, err
	}
	defer n.close()
	cells := map[topic]cell{}
	c.cells[w.name] = cells
	own, err := n.own(ctx)
	if err != nil {
		return nil, err
	}
	var pain suffering
	for round := range m.plan.rounds {
		for _, l := range loads {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			got, err := l.run(ctx, n)
			if err != nil && ctx.Err() == nil {
				c.fail(m.env, w.name+": "+l.name, err)
			}
			if err != nil {
				continue // or has been interrupted
			}
			for what, r := range got {
				cells[topic{l.name, what}] = append(cells[topic{l.name, what}], r)
				pain = pain.plus(r.pain)
			}
			m.env.say("matb: %v: %s: round %d: %s", c.setting, w.name, round+1, brief(l, got))
		}
	}
	after, err := n.own(ctx)
	if err != nil {
		return nil, err
	}
	pain.own = after - own
	c.pains[w.name] = pain
	if m.plan.plots && drawn(w.name) && c.rate == matbGate && slices.Contains(loads, m.loads[0]) {
		return n.record(ctx, m.loads[0])
	}
	return nil, nil
}

// brief is a line of progress.
func brief(l *load, got map[what]reading) string {
	var all []string
	for _, w := range l.figures {
		r := got[w]
		all = append(all, fmt.Sprintf("%v %.2f ms (%.0f again, %.0f time-outs, %.0f lost, %.2f used, %.0f marks late)",
			topic{l.name, w}, r.us/1e3, r.pain.retransmitted, r.pain.timeouts, r.pain.dropped, r.pain.used(), r.pain.late))
	}
	return strings.Join(all, "; ")
}

// suffering is what TCP has had to do again, summed over hosts, and what was lost at
// the uplinks and in the queues of who paces; and how much crossed meanwhile.
type suffering struct {
	retransmitted, needless float64 // segments; needless: the other end had them
	timeouts, spurious      float64 // spurious: TCP found so itself, and took its reaction back
	probes                  float64 // for tail loss
	dropped, own            float64
	bytes, capacity         float64
	late                    float64 // marks that counters were read too late for
}

func (s suffering) plus(o suffering) suffering {
	return suffering{s.retransmitted + o.retransmitted, s.needless + o.needless, s.timeouts + o.timeouts, s.spurious + o.spurious, s.probes + o.probes,
		s.dropped + o.dropped, s.own + o.own, s.bytes + o.bytes, s.capacity + o.capacity, s.late + o.late}
}

func (s suffering) used() float64 { return s.bytes / s.capacity }

// snapshot is what counters say at a moment.
type snapshot struct {
	at     time.Time
	tcp    map[string]float64
	frames uint64 // refused by the uplinks
	bytes  uint64 // that have crossed them
	late   bool   // it was taken when the silence after its mark was over
}

// timeoutCounters are where the kernel counts retransmission time-outs: each in one of
// them, by the state that the connection's recovery is in (tcp_retransmit_timer).
func timeoutCounters() []string {
	return []string{"TCPTimeouts", "TCPLossFailures", "TCPSackFailures", "TCPSackRecoveryFail", "TCPRenoFailures", "TCPRenoRecoveryFail"}
}

// since is what happened between two moments on uplinks of a rate, b/s. Time that was
// paused for a mark is no part of it.
func (s snapshot) since(before snapshot, rate int64, paused time.Duration) (p suffering) {
	grown := func(name string) float64 { return s.tcp[name] - before.tcp[name] }
	p.retransmitted, p.needless = grown("Tcp.RetransSegs"), grown("TcpExt.TCPDSACKRecvSegs")
	for _, name := range timeoutCounters() {
		p.timeouts += grown("TcpExt." + name)
	}
	p.spurious, p.probes = grown("TcpExt.TCPLossUndo"), grown("TcpExt.TCPLossProbes")
	p.dropped, p.bytes = float64(s.frames-before.frames), float64(s.bytes-before.bytes)
	for _, end := range []snapshot{before, s} {
		if end.late {
			p.late++
		}
	}
	p.capacity = 2 * float64(rate) / 8 * (s.at.Sub(before.at) - paused).Seconds() // of two uplinks
	return p
}
