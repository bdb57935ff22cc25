package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
	"github.com/meshmpi/meshmpi/integration/programs"
)

// stage is one act's network, with what is needed to play on it.
type stage struct {
	*story
	net  *deploy.Network
	home string // working directory of all commands; all hosts see it
	bin  string
}

// polite has waiting ranks of Open MPI give up the processor: the five machines
// of the demo share this one's, and ranks that spin starve the daemons.
const polite = "OMPI_MCA_mpi_yield_when_idle=1"

// jobTime bounds one program. On an idle machine of two cores the longest,
// hpcc over the relay, takes half a minute.
const jobTime = 2 * time.Minute

// errNoLab says that this machine cannot have a lab at all.
var errNoLab = errors.New("no hosts to play on")

// perform builds a network, plays on it and takes it away. The logs stay when
// something goes wrong.
func perform(ctx context.Context, s *story, bin string, ws *workshop, nat lab.NAT, play func(context.Context, *stage) error) error {
	logs, err := ws.logs()
	if err != nil {
		return err
	}
	cfg := lab.TwoSites(nat)
	cfg.Dir = logs
	l, err := lab.New(ctx, cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoLab, err)
	}
	err = raise(ctx, s, bin, ws.home(), l, play)
	failed := (err != nil || s.current().good() < len(s.current().checks)) && ctx.Err() == nil
	if failed {
		s.tell(l)
	}
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	if failed {
		kept, kerr := ws.keep(logs)
		if kerr != nil {
			return errors.Join(err, kerr)
		}
		s.note("the daemons' whole logs are in %s/*/*.log", kept)
	}
	return err
}

// raise lets the curtain rise: it shows the machines, makes them a network with
// the commands that an administrator types, and plays.
func raise(ctx context.Context, s *story, bin, home string, l *lab.Lab, play func(context.Context, *stage) error) error {
	s.text(l.Picture())
	fmt.Fprintln(s.w)
	hub := l.Host("hub")
	s.command("hub", "meshd init --name hub --site "+hub.Site+" --advertise "+hub.Addr4.String()+":"+deploy.Port+" --allow-root-exec")
	s.command("hub", "meshd run -v &")
	s.command("hub", "meshctl token create --site alpha --uses 16      # prints a token; the same for beta")
	s.command("a1", "meshd join TOKEN && meshd run -v &               # and so on a2, b1, b2")
	began := time.Now()
	wait := s.working()
	n, err := deploy.Up(ctx, l, deploy.Options{Bin: bin, InitArgs: []string{"--allow-root-exec"}})
	wait()
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	s.check(true, "five meshd processes run, and all know each other after %.1f s", took)
	s.figure(figDaemons, "%.1f s", took)
	if len(s.acts) == 1 {
		s.note("(the hosts have no users but root, so ranks run as root: that is what --allow-root-exec is for)")
	}
	return play(ctx, &stage{story: s, net: n, home: home, bin: bin})
}

// tell shows the ends of the daemons' logs, without what only developers read.
func (s *story) tell(l *lab.Lab) {
	const lines = 8
	for _, h := range l.Hosts() {
		logs, _ := filepath.Glob(filepath.Join(h.Dir(), "*.log"))
		for _, log := range logs {
			text, err := os.ReadFile(log)
			if err != nil {
				text = []byte(err.Error())
			}
			s.note("the last lines of %s on %s:", filepath.Base(log), h.Name)
			s.text(shorten(lastLines(debugRE.ReplaceAllString(string(text), ""), lines), 160))
		}
	}
}

var debugRE = regexp.MustCompile(`(?m)^.*\blevel=DEBUG\b.*\n`)

// run shows a command line, runs it on a host, and returns what it printed.
func (st *stage) run(ctx context.Context, host, line string) (string, error) {
	st.command(host, line)
	defer st.working()()
	return st.quiet(ctx, host, line, jobTime)
}

// quiet runs a command line on a host with our commands in PATH. What does not
// end within limit is asked to (SIGTERM), as by ^C, so that it ends its ranks;
// the error then is context.DeadlineExceeded. Errors hold the last line of the
// output.
func (st *stage) quiet(ctx context.Context, host, line string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := st.net.Lab.Host(host).Command(ctx, "sh", "-c", line)
	cmd.Dir = st.home
	cmd.Env = append(os.Environ(), "PATH="+st.bin+":"+os.Getenv("PATH"), polite)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done within %v: %w", limit, ctx.Err())
	}
	text := strings.TrimSpace(out.String())
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, lastLines(text, 1))
	}
	return text, err
}

// compile compiles one of our C programs, as a user does.
func (st *stage) compile(name, mpi string) error {
	out, err := programs.Compile(st.home, name, "mpicc."+mpi)
	if err != nil {
		return err
	}
	base := filepath.Base(out)
	st.command("a1", fmt.Sprintf("mpicc.%s -O2 -o %s %s.c", mpi, base, base))
	return nil
}
