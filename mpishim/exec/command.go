package exec

import (
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/boot"
)

// Bounds of what a client may ask for before its command runs.
const (
	maxEnv      = 256
	maxEnvBytes = 64 << 10
	maxCommand  = 256 << 10
)

// environment collects env requests (RFC 4254 §6.4).
type environment struct {
	list  []string
	bytes int
}

func (e *environment) add(payload []byte) bool {
	var kv struct{ Name, Value string }
	if ssh.Unmarshal(payload, &kv) != nil || !validEnvName(kv.Name) || strings.ContainsRune(kv.Value, 0) {
		return false
	}
	e.bytes += len(kv.Name) + len(kv.Value)
	if len(e.list) >= maxEnv || e.bytes > maxEnvBytes {
		return false
	}
	e.list = append(e.list, kv.Name+"="+kv.Value)
	return true
}

func validEnvName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// command is the one command of a session, running.
type command struct {
	s      *session
	cmd    *osexec.Cmd
	tree   tree
	record Record
	output sync.WaitGroup // copiers of stdout and stderr
	drain  chan struct{}  // closed when output is done
	ended  chan error     // the command's status
}

// start runs the command of an exec request as $SHELL -c, the way sshd does.
func (s *session) start(ch ssh.Channel, payload []byte, env []string) (*command, error) {
	var request struct{ Command string }
	if err := ssh.Unmarshal(payload, &request); err != nil || len(request.Command) > maxCommand || strings.ContainsRune(request.Command, 0) {
		return nil, fmt.Errorf("exec: a command has at most %d bytes, none of them zero", maxCommand)
	}
	acc := s.account
	c := &command{s: s, drain: make(chan struct{}), ended: make(chan error, 1), tree: tree{ancestor: os.Getpid()}}
	c.tree.cgroup = makeCgroup()
	files, err := c.run(acc, request.Command, env)
	if err != nil {
		return nil, err
	}
	c.tree.sid = c.cmd.Process.Pid
	if err := c.writeRecord(acc.name); err != nil {
		c.cmd.Process.Kill()
		c.cmd.Wait()
		c.tree.end()
		return nil, fmt.Errorf("exec: record the session: %w (is the disk full?)", err)
	}
	go func() { io.Copy(files[0], ch); files[0].Close() }() // ends with the channel or the pipe
	c.output.Go(func() { io.Copy(ch, files[1]); files[1].Close() })
	c.output.Go(func() { io.Copy(ch.Stderr(), files[2]); files[2].Close() })
	go func() { c.output.Wait(); close(c.drain) }() // ends with the command's last descendant
	go func() { c.ended <- c.cmd.Wait() }()         // ends with the command
	s.say("%s runs as %s, process %d: %.200q", s.caller, acc.name, c.cmd.Process.Pid, request.Command)
	return c, nil
}

// run starts the process and returns our ends of its three pipes.
func (c *command) run(acc account, line string, env []string) ([3]*os.File, error) {
	var ours, theirs [3]*os.File
	closeAll := func(files [3]*os.File) {
		for _, f := range files {
			f.Close() // a nil file answers with an error
		}
	}
	defer func() { closeAll(theirs) }()
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			return ours, fmt.Errorf("exec: pipe: %w", err)
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	attr := &syscall.SysProcAttr{Setsid: true, Credential: acc.credential()}
	if c.tree.cgroup != "" {
		if dir, err := os.Open(c.tree.cgroup); err == nil {
			defer dir.Close()
			attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
		}
	}
	type attempt struct {
		dir    string
		cgroup bool
	}
	tries := []attempt{{acc.home, false}, {"/", false}}
	if attr.UseCgroupFD { // an old kernel or a container may refuse what mkdir did not
		tries = []attempt{{acc.home, true}, {acc.home, false}, {"/", true}, {"/", false}}
	}
	var err error
	for _, try := range tries {
		own := *attr
		own.UseCgroupFD = try.cgroup
		c.cmd = &osexec.Cmd{
			Path: acc.shell, Args: []string{filepath.Base(acc.shell), "-c", line}, Dir: try.dir,
			Env: c.s.environ(acc, env), SysProcAttr: &own,
			Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		}
		if err = c.cmd.Start(); err == nil {
			return ours, nil
		}
	}
	closeAll(ours)
	if c.tree.cgroup != "" {
		os.Remove(c.tree.cgroup)
	}
	return ours, fmt.Errorf("exec: user %s: start %s: %w", acc.name, acc.shell, err)
}

// environ is what sshd would set, the client's own, and the MESH_ variables.
func (s *session) environ(acc account, client []string) []string {
	path := "/usr/local/bin:/usr/bin:/bin"
	if acc.uid == 0 {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	if s.cfg.BinDir != "" {
		path = s.cfg.BinDir + ":" + path
	}
	env := []string{"HOME=" + acc.home, "USER=" + acc.name, "LOGNAME=" + acc.name, "SHELL=" + acc.shell, "PATH=" + path}
	env = append(env, client...)
	return append(env,
		"MESH_STATE="+s.cfg.StateDir, "MESH_NODE="+s.cfg.Node, "MESH_SITE="+s.cfg.Site, "MESH_BIN="+s.cfg.BinDir,
		"MESH_ADDRESS="+s.cfg.Dest.Addr().Unmap().String(),
		fmt.Sprintf("SSH_CONNECTION=%s %d %s %d", s.cfg.Source.Addr(), s.cfg.Source.Port(), s.cfg.Dest.Addr(), s.cfg.Dest.Port()))
}

func (c *command) writeRecord(user string) error {
	id, err := boot.ID()
	if err != nil {
		return err
	}
	me, _ := procOf(os.Getpid())
	child, _ := procOf(c.cmd.Process.Pid)
	c.record = Record{
		Boot: id, PID: os.Getpid(), Start: me.start, Command: c.cmd.Process.Pid, CommandStart: child.start,
		Cgroup: c.tree.cgroup, From: c.s.caller.String(), User: user, Began: time.Now().UTC(),
	}
	return c.record.write(c.s.cfg.StateDir)
}

// drainTime is how long descendants that hold the command's output open may
// go on writing after the command itself has ended.
const drainTime = time.Second

// follow passes signals on until the command ends or the connection does, then
// ends whatever the command left and tells the client.
func (c *command) follow(ch ssh.Channel, requests <-chan *ssh.Request, signals <-chan os.Signal, gone <-chan struct{}) error {
	defer os.Remove(recordPath(c.s.cfg.StateDir, c.record.PID))
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	var status error
	for running := true; running; {
		select {
		case status = <-c.ended:
			running = false
		case <-children:
			ReapOrphans(func(pid int) bool { return pid == c.cmd.Process.Pid })
		case sig := <-signals:
			if sig != syscall.SIGPIPE { // EndSessions: the status follows
				fmt.Fprintf(ch.Stderr(), "meshrsh: node %s is leaving and ends what runs there\n", c.s.cfg.Node)
				c.tree.end()
			}
		case <-gone:
			c.tree.end()
			return nil
		case req, ok := <-requests:
			if !ok { // the client closed the channel
				c.tree.end()
				return nil
			}
			req.Reply(req.Type == "signal" && c.signal(req.Payload), nil)
		}
	}
	select {
	case <-c.drain:
	case <-gone:
	case <-time.After(drainTime):
	}
	c.tree.end()
	select {
	case <-c.drain:
	case <-gone:
	}
	return sendStatus(ch, status)
}

// signal passes a signal request (RFC 4254 §6.9) to the command's process group.
func (c *command) signal(payload []byte) bool {
	var request struct{ Name string }
	if ssh.Unmarshal(payload, &request) != nil {
		return false
	}
	sig := unix.SignalNum("SIG" + request.Name)
	return sig > 0 && syscall.Kill(-c.cmd.Process.Pid, sig) == nil
}

// sendStatus ends the channel as RFC 4254 §6.10 says.
func sendStatus(ch ssh.Channel, status error) error {
	ch.CloseWrite()
	var exit *osexec.ExitError
	code := uint32(0)
	if errors.As(status, &exit) {
		ws := exit.Sys().(syscall.WaitStatus)
		if ws.Signaled() {
			_, err := ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Signal      string
				Core        bool
				Error, Lang string
			}{Signal: signalName(ws.Signal()), Core: ws.CoreDump()}))
			return err
		}
		code = uint32(ws.ExitStatus())
	} else if status != nil {
		return fmt.Errorf("exec: wait: %w", status)
	}
	return sendExit(ch, code)
}

func sendExit(ch ssh.Channel, code uint32) error {
	_, err := ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
	return err
}

// signalName is a signal's name without SIG, or a private one with its number.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(sig)) + "@meshmpi"
}

// signalNumber is the inverse of signalName; 0 if the name is unknown.
func signalNumber(name string) int {
	if num, ok := strings.CutSuffix(name, "@meshmpi"); ok {
		if n, err := strconv.Atoi(num); err == nil && n > 0 && n <= 64 {
			return n
		}
		return 0
	}
	return int(unix.SignalNum("SIG" + name))
}
