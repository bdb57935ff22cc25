package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/meshmpi/meshmpi/internal/rate"
)

// Summary is the profile in a few lines for a terminal, without their ends.
func (p *Profile) Summary() []string {
	lines := []string{p.headline()}
	if s := p.incomplete(); s != "" {
		lines = append(lines, s)
	}
	lines = append(lines, fmt.Sprintf("pattern: %s (%s)", p.Pattern.Name, p.Pattern.Why))
	if s := p.pacing(); s != "" {
		lines = append(lines, "pacing: "+s)
	}
	return append(lines, p.placement()...)
}

func (p *Profile) headline() string {
	s := fmt.Sprintf("%s on %s of %s, %s: %s sent", count(len(p.Ranks), "rank"), count(len(p.Nodes), "node"), count(len(p.where.sites), "site"),
		seconds(p.Seconds), size(p.Bytes))
	if len(p.where.sites) > 1 {
		s += fmt.Sprintf(", %s of it between sites", size(p.Sites))
	}
	return s
}

// incomplete says in a line what the profile lacks; "" where it is whole.
func (p *Profile) incomplete() string {
	var none []string
	early := 0
	for i, r := range p.Ranks {
		if !r.Recorded {
			none = append(none, fmt.Sprintf("%d on %s", i, p.Nodes[r.Node].Name))
		} else if !r.Ended {
			early++
		}
	}
	var what []string
	if n := len(none); n > 0 {
		if n > 4 {
			none = append(none[:4], "…")
		}
		what = append(what, fmt.Sprintf("no record of %s (%s)", count(n, "rank"), strings.Join(none, ", ")))
	}
	if early > 0 {
		what = append(what, fmt.Sprintf("%s ended before MPI_Finalize", count(early, "rank")))
	}
	if p.Missed > 0 {
		what = append(what, count(int(min(p.Missed, 1<<31)), "operation")+" could not be told apart")
	}
	if len(what) == 0 {
		return ""
	}
	return "incomplete: " + strings.Join(what, "; ")
}

// pacing recommends a rate in a line; "" where nothing leaves a site.
func (p *Profile) pacing() string {
	if len(p.Pacing) == 0 {
		return ""
	}
	shared := slices.MaxFunc(p.Pacing, func(a, b Pace) int { return cmp.Compare(a.Parts, b.Parts) })
	matb := p.MATB()
	undeclared := fmt.Sprintf("B/%s for each node of %s; say what the link carries by meshctl site set %s --up RATE", digits(shared.Parts), shared.Site, shared.Site)
	switch {
	case shared.Parts <= 1:
		return "none is needed, one node of a site sends to others"
	case p.Pattern.Flag != "" && matb > 0:
		return fmt.Sprintf("--pattern %s, or --matb %s for every node", p.Pattern.Flag, rate.Format(matb))
	case p.Pattern.Flag != "":
		return fmt.Sprintf("--pattern %s; that is %s", p.Pattern.Flag, undeclared)
	case matb > 0:
		return fmt.Sprintf("--matb %s, as %d of %s of %s send to others", rate.Format(matb), shared.Senders, count(shared.Nodes, "node"), shared.Site)
	}
	return undeclared
}

// placement says where ranks had better be, in no line or two.
func (p *Profile) placement() (lines []string) {
	m := p.Moves
	if m == nil {
		return nil
	}
	less := func(from, to uint64) string {
		return fmt.Sprintf("%s between sites instead of %s (%.0f %% less)", size(to), size(from), 100*(1-float64(to)/float64(from)))
	}
	if m.Hosts != "" {
		lines = append(lines, fmt.Sprintf("placement: -H %s would send %s", m.Hosts, less(m.Now, m.Then)))
	}
	if m.Nodes != nil {
		lines = append(lines, "placement: ranks placed one by one, as in the file rankfile, would send "+less(m.Now, m.Best))
	}
	return lines
}

// Bounds of the tables in the report.
const (
	reportNodes = 16
	reportPairs = 20
)

// Report is the profile as text.
func (p *Profile) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s), %s\n", p.Program, p.MPI, p.Began.UTC().Format("2006-01-02 15:04:05 MST"))
	for _, line := range p.Summary() {
		fmt.Fprintln(&b, line)
	}
	if p.Outside > 0 {
		fmt.Fprintf(&b, "besides, %s went to processes of other jobs\n", size(p.Outside))
	}
	fmt.Fprintln(&b, "\nBytes are what the program gives MPI for other ranks; headers and what MPI itself sends are not in them.")
	p.nodeTable(&b)
	p.callTable(&b)
	p.pairTable(&b)
	p.paceTable(&b)
	return b.String()
}

// table writes aligned columns, the first to the left and the others to the right.
func table(b *strings.Builder, title string, rows [][]string) {
	fmt.Fprintf(b, "\n%s\n", title)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := 0
	for _, r := range rows {
		first = max(first, len([]rune(r[0])))
	}
	for _, r := range rows {
		fmt.Fprintf(w, "  %s%s\t%s\t\n", r[0], strings.Repeat(" ", first-len([]rune(r[0]))), strings.Join(r[1:], "\t"))
	}
	_ = w.Flush() // into memory
}

func (p *Profile) nodeTable(b *strings.Builder) {
	if len(p.Nodes) > reportNodes {
		return
	}
	rows := [][]string{{"from \\ to"}}
	for _, n := range p.Nodes {
		rows[0] = append(rows[0], n.Name)
	}
	rows[0] = append(rows[0], "other sites")
	for i, n := range p.Nodes {
		row := []string{fmt.Sprintf("%s (%s)", n.Name, n.Site)}
		for j := range p.Nodes {
			if i == j {
				row = append(row, "·")
			} else {
				row = append(row, size(p.nodes.At(i, j)))
			}
		}
		rows = append(rows, append(row, size(n.Away)))
	}
	table(b, "From node to node", rows)
}

func (p *Profile) callTable(b *strings.Builder) {
	rows := [][]string{{"call", "calls", "bytes", "mean"}}
	calls := slices.Clone(p.Calls)
	slices.SortStableFunc(calls, func(x, y Call) int { return cmp.Compare(y.Bytes, x.Bytes) })
	for _, c := range calls {
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Calls), size(c.Bytes), size(c.Bytes / c.Calls)})
	}
	table(b, "By operation, all ranks", rows)
}

func (p *Profile) pairTable(b *strings.Builder) {
	pairs := slices.Clone(p.Pairs)
	slices.SortStableFunc(pairs, func(x, y Traffic) int { return cmp.Compare(y.Bytes(), x.Bytes()) })
	rows := [][]string{{"from → to", "bytes", "in messages", "messages"}}
	for _, t := range pairs[:min(len(pairs), reportPairs)] {
		rows = append(rows, []string{fmt.Sprintf("%d on %s → %d on %s", t.From, p.Nodes[p.Ranks[t.From].Node].Name, t.To, p.Nodes[p.Ranks[t.To].Node].Name),
			size(t.Bytes()), size(t.Messages), fmt.Sprint(t.Count)})
	}
	title := "From rank to rank"
	if len(pairs) > reportPairs {
		title += fmt.Sprintf(", the first %d of %d pairs", reportPairs, len(pairs))
	}
	table(b, title, rows)
}

func (p *Profile) paceTable(b *strings.Builder) {
	if len(p.Pacing) == 0 {
		return
	}
	rows := [][]string{{"site", "nodes", "that send away", "parts", "link", "MATB"}}
	for _, r := range p.Pacing {
		link, matb := "not declared", "link / "+digits(r.Parts)
		if r.Link > 0 {
			link, matb = rate.Format(r.Link), rate.Format(r.MATB)
		}
		rows = append(rows, []string{r.Site, fmt.Sprint(r.Nodes), fmt.Sprint(r.Senders), digits(r.Parts), link, matb})
	}
	table(b, "What each node may send to other sites", rows)
}
