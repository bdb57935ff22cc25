package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// reach is how one host reaches another.
type reach struct {
	path deploy.Path
	rtt  float64 // ms, the least of three pings
	err  error
}

// String is a cell of the table.
func (r reach) String() string {
	if r.err != nil {
		return "FAILED"
	}
	return fmt.Sprintf("%s %.1f ms", r.path.Kind, r.rtt)
}

// pairs waits until each pair of hosts has the path that it should, pings every
// host from every other by name, and prints the table. Pairs of nodes of
// different sites shall have paths of the kind across, all others direct ones.
func (st *stage) pairs(ctx context.Context, across string) {
	hosts := st.net.Lab.Hosts()
	st.note("each of the five does this to each of the others, by name:")
	st.command("a1", "ping -c3 -i0.05 b1; meshctl path b1")
	wait := st.working()
	cells := st.meet(ctx, hosts, across)
	for i, from := range hosts {
		for j, to := range hosts {
			if r := &cells[i][j]; i != j && r.err == nil {
				r.rtt, r.err = st.ping(ctx, from, to.Name)
			}
		}
	}
	wait()
	rows, failed, first := [][]string{{""}}, 0, ""
	for i, from := range hosts {
		rows[0] = append(rows[0], "to "+from.Name)
		row := []string{from.Name}
		for j, to := range hosts {
			r := cells[i][j]
			if i == j {
				row = append(row, "-")
				continue
			}
			row = append(row, r.String())
			if r.err != nil {
				if failed++; failed == 1 {
					first = fmt.Sprintf("; %s to %s: %v", from.Name, to.Name, r.err)
				}
			}
			if from.Name == "a1" && to.Name == "b1" && r.err == nil {
				st.figure(figPath, "%s", described(r.path))
				st.figure(figPing, "%.1f ms", r.rtt)
			}
		}
		rows = append(rows, row)
	}
	st.text(table(rows))
	all := len(hosts) * (len(hosts) - 1)
	st.check(failed == 0, "%d of %d pings by name answered; paths between the sites are %s%s", all-failed, all, across, first)
}

// described is a path's kind, and by whom it goes.
func described(p deploy.Path) string {
	if len(p.Via) == 0 {
		return p.Kind
	}
	return p.Kind + " by " + strings.Join(p.Via, ", ")
}

// meet waits until every pair has the path that it should.
func (st *stage) meet(ctx context.Context, hosts []*lab.Host, across string) [][]reach {
	cells := make([][]reach, len(hosts))
	var g errgroup.Group
	for i, from := range hosts {
		cells[i] = make([]reach, len(hosts))
		g.Go(func() error {
			for j, to := range hosts {
				want := "udp"
				if from.Site != to.Site && from != st.net.Hub && to != st.net.Hub {
					want = across
				}
				if i != j {
					cells[i][j].path, cells[i][j].err = st.net.AwaitPath(ctx, from.Name, to.Name, want, 15*time.Second)
				}
			}
			return nil
		})
	}
	_ = g.Wait() // each cell has its own error
	return cells
}

// rttRE is the last line of ping's.
var rttRE = regexp.MustCompile(`rtt min/avg/max/mdev = ([\d.]+)/`)

// ping pings a host by name and returns the least round trip, in ms.
func (st *stage) ping(ctx context.Context, from *lab.Host, to string) (float64, error) {
	out, err := from.Run(ctx, "ping", "-c3", "-i0.05", "-W5", to)
	if err != nil {
		return 0, err
	}
	m := rttRE.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("ping of %s printed no round trip: %s", to, lastLines(out, 1))
	}
	return strconv.ParseFloat(m[1], 64)
}
