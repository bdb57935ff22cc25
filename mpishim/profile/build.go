package profile

import (
	"fmt"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mpishim/profile/record"
	"github.com/meshmpi/meshmpi/mpishim/profile/traffic"
)

// places is where ranks are, in numbers.
type places struct {
	node  []int    // by rank
	site  []int    // by node
	sites []string // names, as they come first
}

// Builder adds up the records of a job's ranks, one at a time.
type Builder struct {
	job   Job
	at    places
	ranks []Rank

	bytes    *traffic.Matrix // all
	messages *traffic.Matrix // in messages
	count    *traffic.Matrix // of messages
	ops      [record.Ops]record.Calls
	began    time.Time
	elapsed  time.Duration
	outside  uint64
	missed   uint64
	time     timeline
}

// NewBuilder begins the profile of a job. It is an error if the job has more ranks
// than can be recorded.
func NewBuilder(job Job) (*Builder, error) {
	b := &Builder{job: job}
	for n, p := range job.Places {
		s := slices.Index(b.at.sites, p.Site)
		if s < 0 {
			s = len(b.at.sites)
			b.at.sites = append(b.at.sites, p.Site)
		}
		b.at.site = append(b.at.site, s)
		b.at.node = append(b.at.node, slices.Repeat([]int{n}, p.Ranks)...)
	}
	n := len(b.at.node)
	if n < 1 || n > record.MaxRanks {
		return nil, fmt.Errorf("profile: %d ranks; jobs of 1 to %d are recorded", n, record.MaxRanks)
	}
	b.ranks = make([]Rank, n)
	b.bytes, b.messages, b.count = traffic.NewMatrix(n), traffic.NewMatrix(n), traffic.NewMatrix(n)
	b.time = newTimeline(len(b.at.site), len(b.at.sites))
	return b, nil
}

// Add adds the record of a rank that ran on a node. A record of another job, of a
// rank that has been added, or from a node of no part in this is an error, and is
// left out. Should ranks not be where they were planned, the timeline's sites may be
// wrong for what went to them; sums are right.
func (b *Builder) Add(node string, r *record.Record) error {
	at := slices.IndexFunc(b.job.Places, func(p Place) bool { return p.Node == node })
	switch {
	case at < 0:
		return fmt.Errorf("profile: a record from %s, which has no ranks", node)
	case len(r.Peers) != len(b.ranks):
		return fmt.Errorf("profile: a record from %s of a job of %d ranks, not %d", node, len(r.Peers), len(b.ranks))
	case b.ranks[r.Rank].Recorded:
		return fmt.Errorf("profile: two records of rank %d, one from %s", r.Rank, node)
	}
	b.at.node[r.Rank] = at
	b.ranks[r.Rank].Recorded, b.ranks[r.Rank].Ended = true, r.Ended
	for to, p := range r.Peers {
		b.bytes.Add(r.Rank, to, p.Messages+p.Collective)
		b.messages.Add(r.Rank, to, p.Messages)
		b.count.Add(r.Rank, to, p.Count)
	}
	for o, c := range r.Ops {
		b.ops[o].Calls += c.Calls
		b.ops[o].Bytes += c.Bytes
	}
	b.outside += r.Outside
	b.missed += r.Missed
	b.elapsed = max(b.elapsed, r.Elapsed)
	if b.began.IsZero() || r.Began.Before(b.began) {
		b.began = r.Began
	}
	b.time.add(r, b.at)
	return nil
}

// Recorded is how many ranks' records have been added.
func (b *Builder) Recorded() (n int) {
	for _, r := range b.ranks {
		if r.Recorded {
			n++
		}
	}
	return n
}

// Profile returns what they say together. The builder must not be used any more.
func (b *Builder) Profile() *Profile {
	p := &Profile{
		Version: Version, Program: b.job.Program, MPI: b.job.MPI, Began: b.began, Seconds: b.elapsed.Seconds(), Outside: b.outside, Missed: b.missed,
		Bytes: b.bytes.Total(), Messages: b.count.Total(), Ranks: b.ranks,
		job: b.job, where: b.at, ranks: b.bytes, nodes: b.bytes.Fold(b.at.node, len(b.at.site)),
	}
	p.Sites = traffic.CutOf(b.bytes, b.at.node, b.at.site).Sites
	for i := range p.Ranks {
		p.Ranks[i].Node = b.at.node[i]
	}
	p.Nodes = b.nodes(p.nodes)
	p.Pairs = b.pairs(b.bytes, b.messages, b.count)
	fold := func(m *traffic.Matrix) *traffic.Matrix { return m.Fold(b.at.node, len(b.at.site)) }
	p.ByNode = b.pairs(p.nodes, fold(b.messages), fold(b.count))
	for o, c := range b.ops {
		if c.Calls > 0 {
			p.Calls = append(p.Calls, Call{record.Op(o).String(), c.Calls, c.Bytes})
		}
	}
	p.Timeline = b.time.series(b.elapsed, b.job, b.at)
	p.Pattern = traffic.Name(traffic.Sample{Bytes: b.bytes, Messages: p.Messages, InThem: b.messages.Total(), Ops: b.ops})
	p.Pacing = p.pace()
	p.Moves = p.move()
	return p
}

func (b *Builder) nodes(m *traffic.Matrix) []Node {
	list := make([]Node, len(b.job.Places))
	for i, pl := range b.job.Places {
		list[i] = Node{Name: pl.Node, Site: pl.Site}
		for j := range list {
			if b.at.site[i] != b.at.site[j] {
				list[i].Away += m.At(i, j)
			}
		}
	}
	for _, n := range b.at.node {
		list[n].Ranks++
	}
	return list
}

// pairs lists a matrix without its zeros and its diagonal.
func (b *Builder) pairs(bytes, messages, count *traffic.Matrix) []Traffic {
	list := []Traffic{}
	for i := range bytes.N {
		for j := range bytes.N {
			if i != j && (bytes.At(i, j) > 0 || count.At(i, j) > 0) {
				m := messages.At(i, j)
				list = append(list, Traffic{i, j, m, bytes.At(i, j) - m, count.At(i, j)})
			}
		}
	}
	return list
}
