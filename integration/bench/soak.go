package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// What is soaked: half of the ranks on each host, where there are two.
const (
	soakRanks  = 4
	soakLines  = 21 // that the program prints
	soakFirst  = 4  // of these lines is the one that the last must not have grown from
	soakWithin = time.Hour
)

// soak has ranks exchange very many messages, and shows what they use meanwhile.
func soak(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"mpiexec.hydra": "mpich"}); err != nil {
		return Table{}, err
	}
	program, err := programs.Build(ctx, env.Work, "soak")
	if err != nil {
		return Table{}, err
	}
	l, err := env.lab(ctx, "soak", lab.OneLAN())
	if err != nil {
		return Table{}, err
	}
	defer func() { _ = l.Close() }()
	a, b := l.Host("a1"), l.Host("a2")
	agent, err := plainAgent(ctx, b, env.Work)
	if err != nil {
		return Table{}, err
	}
	defer agent.Close()
	messages := pick(env, 10_000_000, 100_000)
	part := func(h *lab.Host) string {
		return fmt.Sprintf("-n %d -env MESH_ADDRESS %s %s -messages %d", soakRanks/2, h.Addr4, program, messages)
	}
	t := Table{Title: "MPI for Go: a soak", Method: soakMethod(messages),
		Head: []string{"", "messages", "GB", "seconds", "heap, MiB: a fifth / end", "resident, MiB", "goroutines", "open files"}}
	for _, x := range []struct{ place, line string }{
		{"one host, shared memory", fmt.Sprintf("mpiexec.hydra -n %d %s -messages %d", soakRanks, program, messages)},
		{"two hosts, TCP", fmt.Sprintf("mpiexec.hydra -genv MESH_NO_SHM 1 -launcher rsh -launcher-exec %s -iface eth0 -hosts %s:%d,%s:%d %s : %s",
			agent.Script, a.Addr4, soakRanks/2, b.Addr4, soakRanks/2, part(a), part(b))},
	} {
		job := printing{from: a, hosts: []*lab.Host{a, b}, program: program, line: x.line, lines: soakLines, within: soakWithin}
		out, err := job.run(ctx)
		if err != nil {
			return Table{}, err
		}
		s, err := parseSoak(out)
		if err != nil {
			return Table{}, fmt.Errorf("%s: %w in:\n%s", x.place, err, out)
		}
		env.say("soak: %s: %d messages in %.0f s", x.place, s.messages, s.seconds)
		t.Rows = append(t.Rows, s.row(x.place))
		t.Verdicts = append(t.Verdicts, Verdict{s.messages == messages,
			fmt.Sprintf("%s: %d messages have come once, whole and in order, and nothing has grown; all %d must", x.place, s.messages, messages)})
	}
	return t, nil
}

func soakMethod(messages int) string {
	return fmt.Sprintf("%d ranks, of two hosts of one LAN or of one, exchange %d messages (integration/programs/go/soak) of random sizes from 0 to 256 KiB, seven of eight below 128 B, "+
		"with random tags, sent by Send, Ssend, Isend and Issend of one goroutine and asked for by Recv, Irecv, Probe and Mprobe of another, most by wildcards. "+
		"Each is checked to be the next of its sender and tag, byte by byte. What ranks use is the most of any after a collection of garbage, when a fifth has been sent and in the end; "+
		"the program fails if the heap has grown by 1 MiB, the resident size by 32, or goroutines or open files at all.", soakRanks, messages)
}

// soaked is what the program soak has printed.
type soaked struct {
	messages    int
	bytes       int64
	seconds     float64
	first, last [4]float64 // heap and resident size in KiB, goroutines, open files
}

func parseSoak(out string) (s soaked, err error) {
	marks := 0
	for line := range strings.Lines(out) {
		var n int
		var secs float64
		u := &s.last
		if _, err := fmt.Sscanf(line, "soak %d %g %g %g %g %g", &n, &secs, &u[0], &u[1], &u[2], &u[3]); err == nil {
			if marks++; marks == soakFirst {
				s.first = s.last
			}
		}
		_, _ = fmt.Sscanf(line, "soaked %d %d %g", &s.messages, &s.bytes, &s.seconds) // is looked at below
	}
	if marks != soakLines-1 || s.messages == 0 || s.seconds <= 0 {
		return s, fmt.Errorf("%d lines of soak, and not all of soaked", marks)
	}
	return s, nil
}

func (s soaked) row(place string) []string {
	pair := func(i int, unit float64) string { return fmt.Sprintf("%.1f / %.1f", s.first[i]/unit, s.last[i]/unit) }
	return []string{place, fmt.Sprint(s.messages), fmt.Sprintf("%.2f", float64(s.bytes)/1e9), fmt.Sprintf("%.0f", s.seconds),
		pair(0, 1024), pair(1, 1024), fmt.Sprintf("%.0f / %.0f", s.first[2], s.last[2]), fmt.Sprintf("%.0f / %.0f", s.first[3], s.last[3])}
}
