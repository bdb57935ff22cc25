package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// netpipe measures a ping-pong of two ranks on two hosts by NetPIPE.
func netpipe(ctx context.Context, env *Env) (Table, error) {
	if err := needPrograms(map[string]string{"NPopenmpi": "netpipe-openmpi", "mpirun.openmpi": "openmpi-bin"}); err != nil {
		return Table{}, err
	}
	m, err := newMPILAN(ctx, env, "netpipe")
	if err != nil {
		return Table{}, err
	}
	defer m.close()
	rounds := pick(env, 5, 2)
	const large, trips, smallTrips = 1 << 20, 150, 3000 // fewer for messages that take milliseconds
	ways := []struct {
		name string
		line func(program string) string
	}{
		{"bare wire", func(p string) string { return m.plain("eth0", 2, p) }},
		{"wireguard-go", func(p string) string { return m.plain(stockLink, 2, p) }},
		{"meshmpi, the same mpirun", func(p string) string { return m.plain(m.link, 2, p) }},
		{"meshmpi, meshrun", func(p string) string { return m.meshrun(2, p) }},
	}
	var small, big []*contender
	for _, way := range ways {
		small = append(small, &contender{name: way.name + ", 1 B", run: func() (float64, error) {
			seconds, _, err := m.netpipe(ctx, way.line, 1, smallTrips)
			return seconds * 1e6, err
		}})
		big = append(big, &contender{name: way.name + ", 1 MiB", run: func() (float64, error) {
			_, mbits, err := m.netpipe(ctx, way.line, large, trips)
			return mbits / 1e3, err
		}})
	}
	for _, set := range [][]*contender{small, big} {
		err := interleave(rounds, set, func(round int, c *contender) {
			env.say("netpipe: round %d: %s: %.3f", round+1, c.name, c.got[round])
		})
		if err != nil {
			return Table{}, err
		}
	}
	t := Table{
		Title: "NetPIPE",
		Method: fmt.Sprintf("NPopenmpi (Debian's), one rank on each of two hosts of one LAN, %d rounds in turns; bare wire and wireguard-go by mpirun with data on that interface. "+
			"Ranks spin while they wait, on the cores that the daemons need.", rounds),
		Head: []string{"", "1 B one way, µs", "÷ wireguard-go", "1 MiB, Gb/s", "÷ wireguard-go"},
	}
	for i, way := range ways {
		t.Rows = append(t.Rows, []string{way.name, small[i].got.spread("%.1f"), ratio(small[i].got, small[1].got),
			big[i].got.spread("%.2f"), ratio(big[i].got, big[1].got)})
	}
	return t, nil
}

// netpipe runs NetPIPE for one message size and returns the time one way and the
// bandwidth in Mb/s.
func (m *mpiLAN) netpipe(ctx context.Context, line func(string) string, size, trips int) (seconds, mbits float64, err error) {
	out := filepath.Join(m.env.Work, "np.out")
	if err := os.Remove(out); err != nil && !os.IsNotExist(err) {
		return 0, 0, err
	}
	if _, _, err := m.job(ctx, line(fmt.Sprintf("NPopenmpi -l %d -u %d -p 0 -n %d -o %s", size, size, trips, out))); err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return 0, 0, err
	}
	return parseNetPIPE(string(text), size)
}

// parseNetPIPE finds the line of a size: bytes, Mb/s, seconds one way.
func parseNetPIPE(text string, size int) (seconds, mbits float64, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != strconv.Itoa(size) {
			continue
		}
		if mbits, err = strconv.ParseFloat(f[1], 64); err != nil {
			return 0, 0, err
		}
		seconds, err = strconv.ParseFloat(f[2], 64)
		return seconds, mbits, err
	}
	return 0, 0, fmt.Errorf("NetPIPE has no line for %d bytes:\n%s", size, text)
}
