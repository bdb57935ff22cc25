package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/meshmpi/meshmpi/integration/lab"
)

// needPrograms says which Debian packages are missing.
func needPrograms(packages map[string]string) error {
	var missing []string
	for program, pkg := range packages {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs are missing: apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

// iperf runs one TCP stream from a host to an address whose host runs iperf3 -s,
// and returns what arrived, in Gb/s.
func iperf(ctx context.Context, from *lab.Host, to string, seconds int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds+20)*time.Second)
	defer cancel()
	out, err := from.Command(ctx, "iperf3", "-J", "-c", to, "-t", strconv.Itoa(seconds), "--connect-timeout", "5000").Output()
	bits, perr := parseIperf(out)
	if err := errors.Join(perr, err); err != nil {
		return 0, fmt.Errorf("iperf3 from %s to %s: %w", from.Name, to, err)
	}
	return bits / 1e9, nil
}

// parseIperf returns the received bits a second of iperf3's JSON report.
func parseIperf(report []byte) (float64, error) {
	var r struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return 0, fmt.Errorf("its report: %w", err)
	}
	if r.Error != "" {
		return 0, errors.New(r.Error)
	}
	if r.End.Received.Bits <= 0 {
		return 0, errors.New("nothing was received")
	}
	return r.End.Received.Bits, nil
}

// serveIperf starts an iperf3 server on a host; it ends with the lab.
func serveIperf(ctx context.Context, h *lab.Host) error {
	d, err := h.Start("iperf3", "-s", "--forceflush")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return d.Await(ctx, "Server listening")
}

// echo is one answered ping.
type echo struct {
	sent time.Time // by the machine's clock
	rtt  time.Duration
}

// echoRE is a line of ping -D: [1700000000.123456] 64 bytes from …: icmp_seq=1 ttl=64 time=0.042 ms
var echoRE = regexp.MustCompile(`^\[(\d+)\.(\d{6})\] \d+ bytes from .* time=([0-9.]+) ms`)

// parseEchoes reads ping -D's output. The stamp is of the answer; ping's own
// time, from the packet's sending to its answer, leaves the start of the
// process out.
func parseEchoes(out []byte) ([]echo, error) {
	var all []echo
	for line := range bytes.Lines(out) {
		m := echoRE.FindSubmatch(bytes.TrimSpace(line))
		if m == nil {
			continue
		}
		sec, err1 := strconv.ParseInt(string(m[1]), 10, 64)
		usec, err2 := strconv.ParseInt(string(m[2]), 10, 64)
		ms, err3 := strconv.ParseFloat(string(m[3]), 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		rtt := time.Duration(ms * float64(time.Millisecond))
		all = append(all, echo{time.Unix(sec, usec*1000).Add(-rtt), rtt})
	}
	return all, nil
}

// pingHost sends echo requests, each waiting at most five seconds, and returns those
// that were answered. None is not an error.
func pingHost(ctx context.Context, from *lab.Host, to string, count int, interval time.Duration) ([]echo, error) {
	out, err := from.Command(ctx, "ping", "-nD", "-c", strconv.Itoa(count), "-W", "5",
		"-i", strconv.FormatFloat(interval.Seconds(), 'f', 3, 64), to).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // answers are missing
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("ping from %s to %s: %w", from.Name, to, err)
	}
	return parseEchoes(out)
}

// roundTrip returns the median round trip of pings, in milliseconds.
func roundTrip(ctx context.Context, from *lab.Host, to string, count int) (float64, error) {
	echoes, err := pingHost(ctx, from, to, count, 5*time.Millisecond)
	if err != nil {
		return 0, err
	}
	if len(echoes) == 0 {
		return 0, fmt.Errorf("ping from %s to %s: no answer", from.Name, to)
	}
	var s sample
	for _, e := range echoes {
		s = append(s, milliseconds(e.rtt))
	}
	return s.median(), nil
}

// userHz is the unit of a process's times in /proc (USER_HZ), the same on every
// architecture that Linux still cares for.
const userHz = 100

// cpuTime is the processor time, user's and system's, that the programs of a name
// have used on hosts so far; none for "".
func cpuTime(program string, hosts ...*lab.Host) (time.Duration, error) {
	var sum time.Duration
	for _, h := range hosts {
		procs, err := h.Procs()
		if err != nil {
			return 0, err
		}
		for _, p := range procs {
			if program == "" || filepath.Base(p.Args[0]) != program {
				continue
			}
			stat, err := os.ReadFile(h.Path(fmt.Sprintf("/proc/%d/stat", p.PID)))
			if err != nil {
				return 0, err
			}
			ticks, err := parseTicks(string(stat))
			if err != nil {
				return 0, fmt.Errorf("times of %s on %s: %w", program, h.Name, err)
			}
			sum += time.Duration(ticks) * time.Second / userHz
		}
	}
	return sum, nil
}

// parseTicks adds utime and stime of /proc/PID/stat (proc(5): fields 14 and 15;
// the second one, in parentheses, may hold blanks).
func parseTicks(stat string) (int64, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0, errors.New("the line is short")
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return user + system, errors.Join(err1, err2)
}

// busyTime is how long the machine is looked at before each table.
const busyTime = 3 * time.Second

// busyShare returns the share of the machine's processors in use from now on
// for d.
func busyShare(ctx context.Context, d time.Duration) (float64, error) {
	var busy, total [2]int64
	for i := range busy {
		stat, err := os.ReadFile("/proc/stat")
		if err != nil {
			return 0, err
		}
		if busy[i], total[i], err = parseBusy(string(stat)); err != nil {
			return 0, err
		}
		if i > 0 {
			break
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if total[1] <= total[0] {
		return 0, errors.New("/proc/stat: the processors' times do not advance")
	}
	return float64(busy[1]-busy[0]) / float64(total[1]-total[0]), nil
}

// parseBusy adds the times of /proc/stat's first line (proc(5): user, nice,
// system, idle, iowait, irq, softirq, steal; guests' are part of user's).
func parseBusy(stat string) (busy, total int64, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i, field := range f[1:9] {
		v, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if total += v; i != 3 && i != 4 {
			busy += v
		}
	}
	return busy, total, nil
}

// plainAgent is a remote shell to one host for callers on its LAN.
func plainAgent(ctx context.Context, h *lab.Host, dir string) (*lab.Agent, error) {
	return h.StartAgent(ctx, dir, func(ctx context.Context, _, line string) *lab.Cmd { return h.Command(ctx, "/bin/sh", "-c", line) })
}
