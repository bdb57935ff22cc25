package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// holderConfig is what the process that holds a host's namespaces is told, as
// one line of JSON on its standard input.
type holderConfig struct {
	Hostname   string
	Hosts      string // content of /etc/hosts
	Resolv     string // content of /etc/resolv.conf
	State      string // directory to be seen as /var/lib/meshd
	PrivateTmp bool
}

// holder is that process, as its creator sees it: process 1 of the host. It
// ends, and with it everything in the host, when its standard input does.
type holder struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ready io.Reader
	out   strings.Builder
}

// startHolder starts a host; wait tells when it can be used.
func startHolder(cfg holderConfig) (*holder, error) {
	h := &holder{cmd: role(roleHost)}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | unix.CLONE_NEWCGROUP,
		Setsid: true, // a terminal's ^C is for the creator
	}
	h.cmd.Stderr = &h.out
	var err error
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if h.ready, err = h.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, explainPermission(err)
	}
	if err := json.NewEncoder(h.stdin).Encode(cfg); err != nil {
		return nil, errors.Join(err, h.end())
	}
	return h, nil
}

// wait returns when the host is ready.
func (h *holder) wait() error {
	line, err := bufio.NewReader(h.ready).ReadString('\n')
	if err == nil && line == "ready\n" {
		return nil
	}
	_ = h.end()
	if why := firstLine([]byte(h.out.String())); why != "" {
		return errors.New(why)
	}
	return errors.New("its first process did not start: call lab.Main first thing in main or TestMain")
}

// kill kills process 1, whereupon the kernel kills everything in the host.
func (h *holder) kill() { _ = h.cmd.Process.Kill() }

// end kills everything in the host and returns when it is gone, which takes
// that whoever started a process there has waited for it.
func (h *holder) end() error {
	h.kill()
	_ = h.stdin.Close()
	err := h.cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// playHost is the life of process 1 of a host.
func playHost() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("lab: read the host's description: %w", err)
	}
	var cfg holderConfig
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("lab: the host's description: %w", err)
	}
	if err := furnish(cfg); err != nil {
		return fmt.Errorf("lab: furnish host %s: %w", cfg.Hostname, err)
	}
	children := make(chan os.Signal, 1) // one is enough: reap takes all there are
	signal.Notify(children, syscall.SIGCHLD)
	go func() { // ends with the process
		for range children {
			reap()
		}
	}()
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in) // until the creator is gone
	return nil
}

// reap collects what daemons have left to process 1.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
	}
}

// furnish gives the host its own name and its own view of files.
func furnish(cfg holderConfig) error {
	if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := mount("proc", "/proc", ""); err != nil {
		return err
	}
	freshSys()
	for _, dir := range [...]struct{ path, options string }{{"/dev/shm", "mode=1777"}, {"/run", "mode=755"}} {
		if err := mount("tmpfs", dir.path, dir.options); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/lock", 0o777); err != nil {
		return err
	}
	if cfg.PrivateTmp {
		if err := mount("tmpfs", "/tmp", "mode=1777"); err != nil {
			return err
		}
	}
	return furnishFiles(cfg)
}

// furnishFiles lays private writable layers over /etc and /var/lib, and puts
// the files there that name a host.
func furnishFiles(cfg holderConfig) error {
	for _, dir := range [...]string{"/etc", "/var/lib"} {
		if err := overlay(dir); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"/etc/hostname": cfg.Hostname + "\n", "/etc/hosts": cfg.Hosts, "/etc/resolv.conf": cfg.Resolv,
	} {
		// The machine's may be a symbolic link into the /run that is hidden now.
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := keepApart(); err != nil {
		return err
	}
	const state = "/var/lib/meshd"
	if err := os.RemoveAll(state); err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o711); err != nil {
		return err
	}
	if err := unix.Mount(cfg.State, state, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", cfg.State, state, err)
	}
	return nil
}

// keepApart has Open MPI keep a job's files in memory of the host's own. It would in
// /tmp/ompi.HOST.UID/pid.PID, and labs that run at the same time share the machine's
// /tmp, and have hosts of the same names with processes of the same numbers.
func keepApart() error {
	const params = "/etc/openmpi/openmpi-mca-params.conf"
	text, err := os.ReadFile(params)
	if errors.Is(err, os.ErrNotExist) {
		return nil // there is no Open MPI
	}
	if err != nil {
		return err
	}
	// Without root the file, below /etc, is not ours to change.
	const own = "/run/.lab/openmpi-mca-params.conf"
	if err := os.WriteFile(own, append(text, "\norte_tmpdir_base = /dev/shm\n"...), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(own, params, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", own, params, err)
	}
	return nil
}

// overlay makes a directory private: the machine's files stay visible, changes
// stay in memory.
func overlay(dir string) error {
	layers := filepath.Join("/run/.lab", strings.ReplaceAll(dir, "/", "-"))
	upper, work := layers+"/upper", layers+"/work"
	for _, d := range [...]string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	options := "lowerdir=" + dir + ",upperdir=" + upper + ",workdir=" + work
	err := mount("overlay", dir, options+",userxattr")
	if errors.Is(err, unix.EINVAL) { // a kernel before 5.11
		err = mount("overlay", dir, options)
	}
	return err
}

// freshSys shows the host's own interfaces below /sys/class/net. Where the
// system does not allow it, the machine's /sys stays, which few programs mind.
func freshSys() {
	const groups = "/sys/fs/cgroup"
	fd, err := unix.OpenTree(unix.AT_FDCWD, groups, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err == nil {
		defer unix.Close(fd)
	}
	if mount("sysfs", "/sys", "") == nil && err == nil {
		_ = unix.MoveMount(fd, "", unix.AT_FDCWD, groups, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
}

func mount(kind, target, options string) error {
	flags := uintptr(0)
	if kind == "proc" || kind == "sysfs" {
		flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	}
	if err := unix.Mount(kind, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, target, err)
	}
	return nil
}
