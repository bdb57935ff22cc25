package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The parts of hpcc that are measured. They come first, so hpcc is stopped when the
// next one begins: what follows moves gigabytes.
const (
	hpccPTRANS = "PTRANS"
	hpccFFT    = "FFT"
	hpccRandom = "RandomAccess"
	hpccLast   = "Begin of StarFFT section."
	hpccGrid   = "2 4" // rows and columns of processes: rows lie within a site
)

func hpccFigures() []what { return []what{{hpccPTRANS, 0}, {hpccFFT, 0}, {hpccRandom, 0}} }

// hpccSections are the parts by hpcc's names of them.
func hpccSections() map[string]what {
	return map[string]what{"PTRANS": {hpccPTRANS, 0}, "MPIFFT": {hpccFFT, 0}, "MPIRandomAccess": {hpccRandom, 0}}
}

// hpccOrders are the orders of HPL's matrix and of PTRANS'. HPL does not come to run,
// but the bytes of its matrix decide how large FFT's vector and RandomAccess' table
// are, and the latter's time: 131072 updates, in small messages.
const hpccOrder, ptransOrder = 320, 1024

// hpccLoses is how many updates RandomAccess may miss here. It allows itself 655, but with
// more than four ranks it keeps four receives of 1024 updates open (USE_MULTIPLE_RECV) and
// takes of those that are complete the first in its list (MPI_Testany), not in time. So the
// word that the last rank has finished may be read before updates that came first, and
// up to three receives are dropped with what they hold. On one host, without any network,
// 9 of 40 runs lost 2 to 254.
const hpccLoses = 3 * 1024

// writeHPCC makes a directory with hpcc's input.
func writeHPCC(dir string) error {
	rows, cols, _ := strings.Cut(hpccGrid, " ")
	text := fmt.Sprintf(`Input of hpcc: the form of HPL's, then four lines for PTRANS.
For 8 ranks.
-            ignored
8            ignored
1            problem sizes
%d         N
1            block sizes
64           NB
0            ranks in rows
1            grids
%s            P
%s            Q
16.0         largest residual that passes
1            panel factorizations
2            right-looking
1            where the recursion stops
4            columns
1            how it divides
2            in two
1            recursive factorizations
1            Crout
1            broadcasts
1            ring, modified
1            lookaheads
1            depth
2            swaps: a mix
64           its threshold
0            L1 transposed
0            U transposed
1            equilibrate
8            alignment in doubles
(the 32nd line separates)
1            more sizes for PTRANS
%d         which
0            more blocks for PTRANS
0            which
`, hpccOrder, rows, cols, ptransOrder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "hpccinf.txt"), []byte(text), 0o644)
}

// hpcc runs it until the parts are done, and counts within them.
func (l *load) hpcc(ctx context.Context, n *narrow, args string, wanted []what) (map[what]reading, error) {
	ctx, cancel := context.WithTimeout(ctx, matbWithin)
	defer cancel()
	path := filepath.Join(l.dir, "hpccoutf.txt")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // hpcc would append
		return nil, err
	}
	var said bytes.Buffer
	line := l.line(n, args)
	cmd := n.net.Lab.Host("a1").Command(ctx, "sh", "-c", line)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); close(ended) }() // ends with the job, at the latest with ctx
	report := &hpccReport{path: path, take: n.count, between: map[what][2]snapshot{}, open: map[what]snapshot{}}
	err := report.follow(ctx, ended)
	if err == nil { // it is stopped, and says so
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			cancel()
			<-ended
		}
	} else {
		cancel()
		<-ended // what it has said is whole; closed if follow has had the end
	}
	if serr := (printing{hosts: n.net.Lab.Hosts(), program: l.program}).sweep(); err == nil {
		err = serr
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", line, err, report.text, said.Bytes())
	}
	times, err := parseHPCC(report.text)
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, report.text)
	}
	return readings(times, report.between, wanted, n.rate, 0, report.text)
}

// hpccReport reads what hpcc writes while it does.
type hpccReport struct {
	path    string
	take    func() (snapshot, error)
	text    string
	open    map[what]snapshot
	between map[what][2]snapshot
}

// hpccEvery is how often it looks. A section lasts a hundred times as long.
const hpccEvery = 3 * time.Millisecond

// follow returns when the last part is done; it is an error if the job ends before.
func (r *hpccReport) follow(ctx context.Context, ended <-chan error) error {
	tick := time.NewTicker(hpccEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return errors.Join(errors.New("hpcc has ended before its time"), err)
		case <-tick.C:
		}
		text, err := os.ReadFile(r.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := r.grown(string(text)); err != nil {
			return err
		}
		if strings.Contains(r.text, hpccLast) {
			return nil
		}
	}
}

// grown takes a snapshot if sections begin or end in what is new, up to its last line.
func (r *hpccReport) grown(text string) error {
	text = text[:strings.LastIndexByte(text, '\n')+1]
	if len(text) <= len(r.text) {
		return nil
	}
	fresh := text[len(r.text):]
	r.text = text
	now, err := r.take()
	if err != nil {
		return err
	}
	for line := range strings.Lines(fresh) {
		for name, w := range hpccSections() {
			switch strings.TrimSpace(line) {
			case "Begin of " + name + " section.":
				r.open[w] = now
			case "End of " + name + " section.":
				r.between[w] = [2]snapshot{r.open[w], now}
			}
		}
	}
	return nil
}

// Lines of hpcc's report: of PTRANS the kind of time, M, N, four of the layout, the
// time (in hundredths of a second), the verdict and GB/s (in thousandths); of FFT and
// RandomAccess seconds.
var (
	ptransRE   = regexp.MustCompile(`(?m)^WALL +(\d+) +(\d+) +\d+ +\d+ +\d+ +\d+ +([\d.]+) (\S+) +([\d.]+) `)
	fftRE      = regexp.MustCompile(`(?m)^(?:Computing|Inverse FFT): +([\d.]+)$`)
	foundRE    = regexp.MustCompile(`Found (\d+) errors in \d+ locations \(\w+\)`)
	randomRE   = regexp.MustCompile(`(?m)^Real time used = ([\d.]+) seconds$`)
	fftErrorRE = regexp.MustCompile(`(?m)^max\(\|x-x0\|\): +([\d.e+-]+)$`)
)

// parseHPCC reads the times. It is an error if hpcc found a result wrong.
func parseHPCC(text string) (map[what]figure, error) {
	section := func(name string) string {
		_, after, _ := strings.Cut(text, "Begin of "+name+" section.\n")
		body, _, _ := strings.Cut(after, "End of "+name+" section.")
		return body
	}
	var ptrans, fft sample
	for _, m := range ptransRE.FindAllStringSubmatch(section("PTRANS"), -1) {
		rows, err1 := strconv.ParseFloat(m[1], 64)
		cols, err2 := strconv.ParseFloat(m[2], 64)
		took, err3 := strconv.ParseFloat(m[3], 64)
		speed, err4 := strconv.ParseFloat(m[5], 64)
		if rows < ptransOrder && err1 == nil {
			continue // half of HPL's order is always done too
		}
		if err := errors.Join(err1, err2, err3, err4); err != nil || m[4] != "PASSED" || speed <= 0 {
			return nil, fmt.Errorf("hpcc's PTRANS says %q (%v)", m[0], err)
		}
		if took < 0.1 { // then the speed has more digits
			took = rows * cols * 8 / speed / 1e9
		}
		ptrans = append(ptrans, took*1e6)
	}
	for _, m := range fftRE.FindAllStringSubmatch(section("MPIFFT"), -1) {
		s, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, err
		}
		fft = append(fft, s*1e6)
	}
	random := randomRE.FindStringSubmatch(section("MPIRandomAccess"))
	worst := fftErrorRE.FindStringSubmatch(section("MPIFFT"))
	if len(ptrans) == 0 || len(fft) != 2 || random == nil || worst == nil {
		return nil, errors.New("hpcc's report lacks a part")
	}
	s, err1 := strconv.ParseFloat(random[1], 64)
	off, err2 := strconv.ParseFloat(worst[1], 64)
	if err := errors.Join(err1, err2); err != nil || off > 1e-9 {
		return nil, fmt.Errorf("hpcc's FFT is off by %s (%v)", worst[1], err)
	}
	if found := foundRE.FindStringSubmatch(section("MPIRandomAccess")); found == nil {
		return nil, errors.New("hpcc's RandomAccess did not check its result")
	} else if n, err := strconv.Atoi(found[1]); err != nil || n > hpccLoses {
		return nil, fmt.Errorf("hpcc's RandomAccess lost more than it does by itself: %q (%v)", found[0], err)
	}
	return map[what]figure{
		{hpccPTRANS, 0}: {mean: ptrans.mean()},
		{hpccFFT, 0}:    {mean: fft[0] + fft[1]},
		{hpccRandom, 0}: {mean: s * 1e6},
	}, nil
}

// mean is the average.
func (s sample) mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}
