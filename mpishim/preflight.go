package mpishim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/meshmpi/meshmpi/mpishim/exec"
)

// Remote runs one command on a node, as exec.Run does.
type Remote func(ctx context.Context, host string, opt exec.RunOptions) (code int, err error)

// checks is the shell program that says of each of its arguments but the first whether
// it exists and can be executed here; the first is a PATH to search before the own, or
// empty. User shells differ, so /bin/sh runs it; csh passes on no newline, and no
// exclamation mark.
const checks = `PATH="${1:+$1:}$PATH"; shift; for p do case $p in ` +
	`*/*) if [ -f "$p" ] && [ -x "$p" ]; then echo ok; elif [ -d "$p" ]; then echo folder; elif [ -e "$p" ]; then echo noexec; else echo missing; fi;; ` +
	`*) if command -v -- "$p" >/dev/null 2>&1; then echo ok; else echo missing; fi;; ` +
	`esac; done; echo meshrun-checked`

// maxAtOnce bounds connections that are opened at the same time.
const maxAtOnce = 64

// Preflight asks every node of the plan but this one, at the same time, whether
// it can be reached, has the programs and the launcher's part. The error is one
// line about the first node in the plan's order that cannot run its ranks.
func Preflight(ctx context.Context, p Plan, remote Remote) error {
	want, part := p.needs()
	path := PathOf(p.Export, p.Environ)
	return eachRemote(p.Places, func(h Host) error {
		script := append([]string{"exec /bin/sh -c", Quote(checks), "sh", Quote(path)}, quoteAll(want)...)
		var out, errs bytes.Buffer
		code, err := remote(ctx, h.Name, exec.RunOptions{
			Command: strings.Join(script, " "), Stdout: limit(&out, 64<<10), Stderr: limit(&errs, 4<<10),
		})
		if err != nil {
			return &ExitError{CodeFailed, err}
		}
		answers := strings.Fields(out.String())
		if i := len(answers) - len(want) - 1; i >= 0 && answers[len(answers)-1] == "meshrun-checked" {
			return judge(h, want, answers[i:], part) // a login script may have talked before
		}
		return failf(CodeFailed, "node %s: the shell there failed with code %d: %.200s", h.Name, code, strings.Join(strings.Fields(errs.String()), " "))
	})
}

// needs lists what must be executable on every node; the last is the launcher's part.
func (p Plan) needs() (want []string, part family) {
	for _, a := range p.Apps {
		if !strings.HasPrefix(a.Prog, staged) {
			want = append(want, a.Prog)
		}
	}
	part, _ = familyOf(p.Launcher.Kind)
	tool := part.part
	if part.kind == OpenMPI && p.Launcher.Major >= 5 {
		tool = "prted"
	}
	switch {
	case part.kind == Go: // lies beside the daemon, where sessions look first
	case p.prefix() != "" || part.kind != OpenMPI:
		tool = filepath.Join(filepath.Dir(p.Launcher.Path), tool) // Hydra calls it by its full path
	}
	return append(want, tool), part
}

func judge(h Host, want, answers []string, part family) error {
	for i, w := range want {
		tool := i == len(want)-1
		switch {
		case answers[i] == "ok":
		case tool && part.kind == Go:
			return failf(CodeFailed, "node %s lacks %s; install it there beside meshd", h.Name, w)
		case tool:
			return failf(CodeFailed, "node %s lacks %s; try there: apt install %s", h.Name, w, part.pack)
		case answers[i] == "missing":
			return failf(CodeNotFound, "node %s has no program %s; copy it there or use --stage", h.Name, w)
		case answers[i] == "folder":
			return failf(CodeCannotRun, "%s on node %s is a directory, and no program; name one in it", w, h.Name)
		default:
			return failf(CodeCannotRun, "node %s cannot execute %s; try there: chmod +x %s", h.Name, w, Quote(w))
		}
	}
	return nil
}

// eachRemote runs f for the other nodes at the same time and returns the first
// error in their order.
func eachRemote(places []Place, f func(Host) error) error {
	errs := make([]error, len(places))
	room := make(chan struct{}, maxAtOnce)
	var all sync.WaitGroup
	for i, pl := range places {
		if pl.Host.Self {
			continue
		}
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			errs[i] = f(pl.Host)
		})
	}
	all.Wait()
	others := -1
	var first error
	for _, err := range errs {
		if err != nil {
			others++
			if first == nil {
				first = err
			}
		}
	}
	if others > 0 {
		return &ExitError{Code(first), fmt.Errorf("%w (and %s like it)", first, count(others, "node"))}
	}
	return first
}

// Resolve finds prog on this node: in the directories of path where it holds no
// slash, else made absolute, since ranks start elsewhere.
func Resolve(prog, path string) (string, error) {
	found, err := lookPath(prog, path)
	if err == nil {
		return filepath.Abs(found)
	}
	if errors.Is(err, syscall.EISDIR) {
		return "", failf(CodeCannotRun, "%s on this node is a directory, and no program; name one in it", prog)
	}
	code, what := cannotRun(err)
	hint := "give its path, such as ./" + filepath.Base(prog)
	if code == CodeCannotRun {
		hint = "try: chmod +x " + Quote(prog)
	} else if strings.Contains(prog, "/") {
		hint = "build it first, or correct the path"
	}
	return "", failf(code, "%s on this node: %s; %s", what, prog, hint)
}

// stageDir is where staged programs are kept on a node.
func stageDir() (string, error) {
	home, err := os.UserHomeDir() // a session knows no other of the user's directories
	return filepath.Join(home, ".cache", "meshmpi", "stage"), err
}

// receive is the shell program that stores a staged file: HASH, NAME. What was
// not used for thirty days goes. It is as checks is.
const receive = `set -e; umask 077; d="$HOME/.cache/meshmpi/stage"; mkdir -p "$d"; ` +
	`if [ -f "$d/$1" ]; then rm -f "$d/$1"; fi; mkdir -p "$d/$1"; touch "$d/$1"; ` +
	`find "$d" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null || :; ` +
	`if [ -x "$d/$1/$2" ]; then exit 0; fi; ` +
	`t="$d/$1/.$$"; trap 'rm -f "$t"' EXIT; cat >"$t"; chmod 700 "$t"; mv "$t" "$d/$1/$2"`

// Stage copies the programs of the plan to every node, this one included, into
// the user's cache directory, beneath the hash of their content, and returns
// the plan with programs that ranks find there. Copies stay, so that the next
// run starts at once. Libraries are not copied.
func Stage(ctx context.Context, p Plan, remote Remote) (Plan, error) {
	apps := append([]App(nil), p.Apps...)
	for i, a := range apps {
		raw, err := os.ReadFile(a.Prog)
		if err != nil {
			return p, failf(CodeFailed, "stage: %w", err)
		}
		sum := sha256.Sum256(raw)
		hash, name := hex.EncodeToString(sum[:16]), filepath.Base(a.Prog)
		command := strings.Join([]string{"exec /bin/sh -c", Quote(receive), "sh", hash, Quote(name)}, " ")
		local := osexec.CommandContext(ctx, "/bin/sh", "-c", command)
		local.Stdin = bytes.NewReader(raw)
		if out, err := local.CombinedOutput(); err != nil {
			return p, failf(CodeFailed, "stage %s on this node: %w: %.200s", a.Prog, err, bytes.TrimSpace(out))
		}
		err = eachRemote(p.Places, func(h Host) error {
			var errs bytes.Buffer
			code, err := remote(ctx, h.Name, exec.RunOptions{Command: command, Stdin: bytes.NewReader(raw), Stderr: limit(&errs, 4<<10)})
			if err == nil && code != 0 {
				err = fmt.Errorf("mpishim: stage %s on node %s: %.200s", a.Prog, h.Name, strings.Join(strings.Fields(errs.String()), " "))
			}
			if err != nil {
				return &ExitError{CodeFailed, err}
			}
			return nil
		})
		if err != nil {
			return p, err
		}
		apps[i].Prog = staged + hash + "/" + name
	}
	p.Apps = apps
	return p, nil
}

func quoteAll(words []string) (quoted []string) {
	for _, w := range words {
		quoted = append(quoted, Quote(w))
	}
	return quoted
}

// limit bounds what a node may make us keep: the rest is dropped.
func limit(w io.Writer, n int) io.Writer { return &limited{w, n} }

type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), l.left)]
	l.left -= len(keep)
	if _, err := l.w.Write(keep); err != nil {
		return 0, err
	}
	return len(p), nil
}
