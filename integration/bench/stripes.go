package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
	"github.com/meshmpi/meshmpi/integration/wan"
)

// The two lines between the hosts, and what package mpi promises over them.
const (
	stripeRate  = 100_000_000 // bits per second, of each line
	stripeDelay = 5 * time.Millisecond
	stripeQueue = 1 << 20 // bytes: eight times what is under way
	stripeWorse = 1.05    // of the better line's time, at most, at any size
	stripeGain  = 1.7     // times as fast at the largest size, at least
	stripeLong  = 8 << 20

	lossDelay = 10 * time.Millisecond // one way: 20 ms there and back
	lossShare = 0.01
	lossLinks = 4
	lossBulk  = 64 << 10
)

// stripeSizes are the messages of the ping-pong.
func stripeSizes() []int {
	return []int{1, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, stripeLong}
}

// twoLines is two hosts that two lines join, besides a LAN for their launcher, and
// a third line that loses packets.
type twoLines struct {
	lab      *lab.Lab
	a, b     *lab.Host
	agent    *lab.Agent
	programs map[string]string
	lines    [][2]netip.Addr // of a and b on each line; the last loses
}

func newTwoLines(ctx context.Context, env *Env, name string) (*twoLines, error) {
	m := &twoLines{programs: map[string]string{}}
	var err error
	for _, p := range []string{"pp", "tags"} {
		if m.programs[p], err = programs.Build(ctx, env.Work, p); err != nil {
			return nil, err
		}
	}
	if m.lab, err = env.lab(ctx, name, lab.OneLAN()); err != nil {
		return nil, err
	}
	m.a, m.b = m.lab.Host("a1"), m.lab.Host("a2")
	line := wan.Pipe{Rate: stripeRate, Delay: stripeDelay, Queue: stripeQueue, Seed: 1}
	lossy := line
	lossy.Delay, lossy.Loss = lossDelay, lossShare
	for _, p := range []wan.Pipe{line, line, lossy} {
		at, other, err := m.lab.Line(m.a, m.b, wan.Symmetric(p))
		if err != nil {
			_ = m.lab.Close()
			return nil, err
		}
		m.lines = append(m.lines, [2]netip.Addr{at, other})
	}
	if m.agent, err = plainAgent(ctx, m.b, env.Work); err != nil {
		_ = m.lab.Close()
		return nil, err
	}
	return m, nil
}

func (m *twoLines) close() {
	_ = m.lab.Close()
	m.agent.Close()
}

// over has a program run by two ranks over lines, with so many links.
func (m *twoLines) over(ctx context.Context, name, program, args string, links int, figures []what, lines ...[2]netip.Addr) *player {
	var addrs [2][]string
	for _, l := range lines {
		addrs[0], addrs[1] = append(addrs[0], l[0].String()), append(addrs[1], l[1].String())
	}
	part := func(i int) string {
		return fmt.Sprintf("-n 1 -env MESH_ADDRESS %s -env MESH_LINKS %d %s %s", strings.Join(addrs[i], ","), links, m.programs[program], args)
	}
	job := printing{from: m.a, hosts: []*lab.Host{m.a, m.b}, program: m.programs[program], lines: len(figures), within: 2 * jobTime,
		line: fmt.Sprintf("mpiexec.hydra -launcher rsh -launcher-exec %s -iface eth0 -hosts %s,%s %s : %s", m.agent.Script, m.a.Addr4, m.b.Addr4, part(0), part(1))}
	return newPlayer(name, figures, func() (string, error) { return job.run(ctx) })
}

// stripes compares one line with two, and links that lose packets with more of them.
func stripes(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"mpiexec.hydra": "mpich"}); err != nil {
		return Table{}, err
	}
	m, err := newTwoLines(ctx, env, "stripes")
	if err != nil {
		return Table{}, err
	}
	defer m.close()
	rounds := pick(env, 5, 1)
	figures := named("pp", stripeSizes())
	args := fmt.Sprintf("-least 4 -seconds %g %s", pick(env, 2, 0.5), words(stripeSizes()))
	one := m.over(ctx, "the first line", "pp", args, 1, figures, m.lines[0])
	other := m.over(ctx, "the second line", "pp", args, 1, figures, m.lines[1])
	both := m.over(ctx, "both lines", "pp", args, 2, figures, m.lines[0], m.lines[1])
	tags := []what{{"tags", 64}}
	args = fmt.Sprintf("-bulk %d -seconds %g", lossBulk, pick(env, 20, 8.0))
	single := m.over(ctx, "1 % loss, one link", "tags", args, 1, tags, m.lines[2])
	several := m.over(ctx, fmt.Sprintf("1 %% loss, %d links", lossLinks), "tags", args, lossLinks, tags, m.lines[2])
	for _, all := range [][]*contender{{&one.contender, &other.contender, &both.contender}, {&single.contender, &several.contender}} {
		err := interleave(rounds, all, func(round int, c *contender) {
			env.say("stripes: round %d: %s: %.0f µs", round+1, c.name, c.got[round])
		})
		if err != nil {
			return Table{}, err
		}
	}
	t := Table{Title: "Several links between two processes", Method: stripesMethod(rounds),
		Head: []string{"message", "first line, µs", "second line, µs", "both, µs", "better line ÷ both"}}
	for _, w := range figures {
		best := better(w, one, other)
		t.Rows = append(t.Rows, []string{size(w.bytes), one.got[w].mean.spread("%.0f"), other.got[w].mean.spread("%.0f"), both.got[w].mean.spread("%.0f"),
			ratio(best.got[w].mean, both.got[w].mean)})
	}
	for _, p := range []*player{single, several} {
		s := p.got[tags[0]]
		t.Rows = append(t.Rows, []string{"64 B, " + p.name, s.mean.spread("%.0f") + " on average", s.worst.spread("%.0f") + " in the 99th percentile", s.mbps.spread("%.1f") + " Mb/s beside", ""})
	}
	t.Verdicts = append(judgeStripes(figures, one, other, both), judgeLoss(tags[0], single, several))
	return t, nil
}

func stripesMethod(rounds int) string {
	return fmt.Sprintf("Two hosts with two lines between them, each %d Mb/s and %v one way with a queue of %s, by the WAN emulator. Ping-pong (go/pp) by mpiexec.hydra, half a round trip on average, "+
		"%d rounds in turns; MESH_ADDRESS names the address of one line or of both. Below: a line of %v one way that loses %.0f %% of packets each way; one tag carries messages of %s as fast as it can, "+
		"and others small ones meanwhile (go/tags), by MESH_LINKS.",
		stripeRate/1_000_000, stripeDelay, size(stripeQueue), rounds, lossDelay, 100*lossShare, size(lossBulk))
}

// judgeStripes checks that no size suffers and that large ones gain.
func judgeStripes(figures []what, one, other, both *player) (all []Verdict) {
	worst, at := 0.0, what{}
	for _, w := range figures {
		best := better(w, one, other)
		if r := both.got[w].mean.by(best.got[w].mean); r > worst {
			worst, at = r, w
		}
	}
	all = append(all, Verdict{worst <= stripeWorse, fmt.Sprintf("over both lines no size takes longer than %.2f of the time over the better one (%s); it must be at most %.2f, which is the measurement's grain",
		worst, size(at.bytes), stripeWorse)})
	w := what{"pp", stripeLong}
	gain := better(w, one, other).got[w].mean.by(both.got[w].mean)
	return append(all, Verdict{gain >= stripeGain, fmt.Sprintf("%s is %.2f times as fast over both lines; it must be at least %.1f", size(stripeLong), gain, stripeGain)})
}

// judgeLoss checks that a tag's stall does not stop another.
func judgeLoss(w what, single, several *player) Verdict {
	before, after := single.got[w].worst.median(), several.got[w].worst.median()
	return Verdict{after < before, fmt.Sprintf("with 1 %% loss small messages beside a stream take %.1f ms in the 99th percentile over %d links, %.1f ms over one; it must be less",
		after/1e3, lossLinks, before/1e3)}
}
