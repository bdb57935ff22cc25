package mpishim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/meshmpi/meshmpi/mpi/pmi"
	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// ranksCommand starts the agent on a node, where that node has it.
const ranksCommand = `exec /bin/sh -c 'PATH="${MESH_BIN:-/usr/bin}:$PATH" exec meshrun ` + RanksArg + `'`

// goCommand is the agent on this node.
func goCommand(p Plan) Command {
	return Command{Path: filepath.Join(p.Overlay.BinDir, "meshrun"), Args: []string{RanksArg}, Env: p.environ()}
}

// RunGo runs a planned job of programs of package mpi and returns its exit code,
// as Run does for those of other MPIs: it serves PMI-1 on this node's virtual
// address and has an agent on each node start the ranks; remote reaches the other
// nodes. With Plan.FT a rank that dies is an event to the others, and the code is
// the highest of those that finished; it is the first dead one's if none did.
// Each rank gets PMI_PORT, PMI_ID and the server's key, its node's MESH_NODE,
// MESH_SITE and MESH_ADDRESS, where it is to listen, and the network's MESH_CIDR.
// RunGo adopts orphans, so it must be the only thing that the process does. It
// may leave one goroutine blocked in a read of Streams.Stdin.
func RunGo(ctx context.Context, p Plan, s Streams, remote Remote) (code int, err error) {
	endAll, err := exec.Adopt()
	if err != nil {
		return CodeFailed, failf(CodeFailed, "adopt orphans: %w", err)
	}
	defer endAll()
	j := newGoJob(ctx, p, s, remote)
	defer func() {
		j.close()
		code, err = j.scr.result(code, err, s.Signals, j.sig != 0)
	}()
	j.nodes = make([]*goNode, len(p.Places))
	for i, pl := range p.Places {
		j.nodes[i] = j.startNode(pl.Host)
	}
	places := make([]int, 0, 16)
	for i, pl := range p.Places {
		for range pl.Ranks {
			places = append(places, i)
		}
	}
	if _, err := j.startWorld(p.Apps, places, worldOptions{wdir: p.Wdir, must: p.MustWdir}); err != nil {
		return CodeFailed, &ExitError{CodeFailed, err}
	}
	j.takeInput()
	return j.run(ctx)
}

// goWorld is one job in MPI's sense: the ranks of a COMM_WORLD.
type goWorld struct {
	id    int // 0: the first; others were spawned
	srv   *pmi.Server
	procs []*goProc // by rank

	joins   bool          // its ranks tell when they have met who spawned it
	met     bool          // it counts as started, and whoever spawned it is told so
	begun   chan struct{} // closed then
	failed  bool          // to come into being, or given up
	failure chan error    // why, once; nil: it is the first
}

// goProc is one process.
type goProc struct {
	id    uint32
	world *goWorld
	rank  int
	node  *goNode

	told    bool // its node has said that it ended; goJob.mu guards this
	ended   bool
	well    bool // and left as it should
	cut     bool // killed because its connection had ended
	noticed int  // when its connection was seen to end, counted; 0: was not
	code    int
}

// label is "2 on b1", and "2 of spawned job 1 on b1".
func (g *goProc) label() string {
	if g.world.id > 0 {
		return fmt.Sprintf("%d of spawned job %d on %s", g.rank, g.world.id, g.node.host.Name)
	}
	return strconv.Itoa(g.rank) + " on " + g.node.host.Name
}

// tag begins its lines where that is asked for.
func (g *goProc) tag() string {
	if g.world.id > 0 {
		return fmt.Sprintf("[%d.%d] ", g.world.id, g.rank)
	}
	return fmt.Sprintf("[%d] ", g.rank)
}

// worldOptions are what differs between the first job and spawned ones.
type worldOptions struct {
	wdir    string
	must    bool
	keys    map[string]string
	spawned bool
	joins   bool // goWorld.joins
}

// startWorld serves a job and starts its ranks, rank r on node places[r].
func (j *goJob) startWorld(apps []App, places []int, opt worldOptions) (*goWorld, error) {
	w := &goWorld{id: len(j.worlds)}
	if opt.spawned {
		w.joins, w.begun, w.failure = opt.joins, make(chan struct{}), make(chan error, 1)
	}
	var of []int // app of each rank
	for i, a := range apps {
		of = append(of, slices.Repeat([]int{i}, a.N)...)
	}
	if len(of) != len(places) || len(j.procs)+len(of) > MaxRanks {
		return nil, failf(CodeFailed, "%d ranks for %d places; a job has at most %d", len(of), len(places), MaxRanks)
	}
	keys := map[string]string{"PMI_process_mapping": processMapping(places)}
	for k, v := range opt.keys {
		keys[k] = v
	}
	secret := newSecret()
	var err error
	w.srv, err = pmi.NewServer(pmi.Config{
		Size: len(of), Apps: of, Key: secret, Universe: j.universe, Spawned: opt.spawned, Keys: keys,
		FaultTolerant: j.p.FT, Names: j.names,
		Notice: func(n pmi.Notice) { j.post(func() { j.notice(w, n) }) },
		Spawn:  j.spawn,
		Joined: func(err error) { j.post(func() { j.joined(w, err) }) },
	})
	if err != nil {
		return nil, failf(CodeFailed, "%w", err)
	}
	ln, err := listenRanks(j.p.Overlay.Addr)
	if err != nil {
		return nil, err
	}
	specs := make([]startSpec, len(j.nodes))
	for r, place := range places {
		g := &goProc{id: uint32(len(j.procs) + r), world: w, rank: r, node: j.nodes[place]}
		w.procs = append(w.procs, g)
		env := j.rankEnv(g, len(of), ln.Addr().String(), secret, opt.spawned)
		specs[place].Procs = append(specs[place].Procs, procSpec{Proc: g.id, App: of[r], Env: env, Stdin: w.id == 0 && r == 0 && j.s.Stdin != nil})
	}
	starts, err := j.pack(specs, apps, opt)
	if err != nil {
		ln.Close()
		return nil, err
	}
	j.worlds = append(j.worlds, w)
	j.serve(w, ln)
	for _, g := range w.procs {
		j.know(g)
	}
	for i, b := range starts {
		if b == nil {
			continue
		}
		if j.nodes[i].send(frame{frameStart, 0, b}); j.nodes[i].over {
			j.nodeLost(j.nodes[i])
		}
	}
	return w, nil
}

// serve has the world's server take connections until the job is over.
func (j *goJob) serve(w *goWorld, ln net.Listener) {
	j.serving.Go(func() {
		if err := w.srv.Serve(j.ctx, ln); err != nil {
			j.post(func() { j.fail(CodeFailed, failf(CodeFailed, "%w", err)) })
		}
	})
}

// pack makes the frame that has each node start what is theirs; nil where that is
// nothing. Nothing starts before all are known to fit.
func (j *goJob) pack(specs []startSpec, apps []App, opt worldOptions) ([][]byte, error) {
	list := make([][]byte, len(specs))
	for i, spec := range specs {
		if len(spec.Procs) == 0 {
			continue
		}
		n := j.nodes[i]
		if spec.Wdir, spec.Must = opt.wdir, opt.must; opt.spawned && opt.wdir == "" {
			spec.Wdir, spec.Must = j.p.Wdir, j.p.MustWdir
		}
		spec.Env = j.nodeEnv(n.host)
		for _, a := range apps {
			spec.Apps = append(spec.Apps, appSpec{append(words{a.Prog}, a.Args...)})
		}
		b, err := json.Marshal(spec)
		if err != nil || len(b) > maxStart {
			return nil, failf(CodeFailed, "the command lines and variables of %s are too long to send to node %s (%d bytes)", count(len(spec.Procs), "rank"), n.host.Name, len(b))
		}
		list[i] = b
	}
	return list, nil
}

// listenRanks opens the port that ranks find in PMI_PORT.
func listenRanks(addr netip.Addr) (net.Listener, error) {
	if !addr.IsValid() {
		return nil, failf(CodeFailed, "this node has no virtual address; see meshctl status")
	}
	ln, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return nil, failf(CodeFailed, "serve ranks on %s: %w; is meshd running? see meshctl status", addr, err)
	}
	return ln, nil
}

// rankEnv are the variables of one rank.
func (j *goJob) rankEnv(g *goProc, size int, addr, secret string, spawned bool) []string {
	env := []string{
		"PMI_PORT=" + addr, "PMI_ID=" + strconv.Itoa(g.rank), pmi.EnvKey + "=" + secret,
		"PMI_RANK=" + strconv.Itoa(g.rank), "PMI_SIZE=" + strconv.Itoa(size),
	}
	if spawned {
		env = append(env, "PMI_SPAWNED=1")
	}
	return env
}

// nodeEnv are the variables of all ranks on a node.
func (j *goJob) nodeEnv(h Host) []string {
	env := []string{varNode + "=" + h.Name, varSite + "=" + h.Site, varAddress + "=" + h.Addr.String(), "MESH_CIDR=" + j.p.Overlay.CIDR.String()}
	if j.p.FT {
		env = append(env, pmi.EnvFT+"=1")
	}
	if h.Self { // the agent has all of ours
		return env
	}
	ours := j.p.environ()
	for _, name := range j.p.exported(ours) {
		for _, kv := range ours {
			if strings.HasPrefix(kv, name+"=") {
				env = append(env, kv)
			}
		}
	}
	return env
}

// processMapping is the node of each rank as MPICH writes it: blocks of (first
// node, nodes, ranks on each).
func processMapping(places []int) string {
	var b strings.Builder
	b.WriteString("(vector")
	for i := 0; i < len(places); {
		n := i
		for n < len(places) && places[n] == places[i] {
			n++
		}
		fmt.Fprintf(&b, ",(%d,1,%d)", places[i], n-i)
		i = n
	}
	return b.String() + ")"
}

// localAgent is the Remote of this node: the agent as our child.
func (j *goJob) localAgent(ctx context.Context, _ string, opt exec.RunOptions) (int, error) {
	c := goCommand(j.p)
	cmd := osexec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.Env, opt.Stdout, opt.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals come through us
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = ranksGrace + ranksDrain
	stdin, err := cmd.StdinPipe() // Wait would wait for cmd.Stdin to end
	if err != nil {
		return CodeFailed, err
	}
	if err = cmd.Start(); err == nil {
		go func() { // ends with opt.Stdin
			io.Copy(stdin, opt.Stdin)
			stdin.Close()
		}()
		err = cmd.Wait()
	}
	var exit *osexec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	case errors.Is(err, os.ErrNotExist):
		return CodeFailed, fmt.Errorf("no meshrun in %s; install it beside meshd", j.p.Overlay.BinDir)
	}
	return CodeFailed, err
}

// agentSilence is how long a node with ranks may be silent before it is lost.
const agentSilence = 15 * time.Second
