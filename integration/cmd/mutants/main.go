// Mutants plants the bugs that mpi/mutants.md lists, one after the other, and fails
// if the tests of package mpi pass with one of them. Files are not changed: the
// compiler is given copies. An argument selects bugs by a part of their description.
//
//	go run ./integration/cmd/mutants [PART]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is a bug to plant.
type mutant struct {
	file, what string
	from, to   string // lines
	run        string // tests; empty: all
	in         string // whose they are, a directory
}

func main() {
	only := ""
	if len(os.Args) > 1 {
		only = os.Args[1]
	}
	if err := try(only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func try(only string) error {
	list, err := read("mpi/mutants.md")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	alive := 0
	for _, m := range list {
		if !strings.Contains(m.file+": "+m.what, only) {
			continue
		}
		begun := time.Now()
		by, err := m.try(dir)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", m.file, m.what, err)
		}
		if by == "" {
			alive++
			by = "SURVIVES"
		}
		fmt.Printf("%5.1f s  %-28s %s: %s\n", time.Since(begun).Seconds(), by, m.file, m.what)
	}
	if alive > 0 {
		return fmt.Errorf("%d of them survive", alive)
	}
	return nil
}

// read parses the list: blocks of a file's name and what is wrong, a line to take
// out and one to put in.
func read(name string) (list []mutant, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(string(text), "```")
	if len(parts) < 3 {
		return nil, fmt.Errorf("%s has no list", name)
	}
	for _, block := range strings.Split(strings.TrimSpace(parts[1]), "\n\n") {
		m := mutant{in: "mpi"}
		for i, line := range strings.Split(block, "\n") {
			switch {
			case i == 0:
				m.file, m.what, _ = strings.Cut(line, ": ")
			case strings.HasPrefix(line, "-"):
				m.from = line[1:]
			case strings.HasPrefix(line, "+"):
				m.to = line[1:]
			case strings.HasPrefix(line, "run "):
				m.run = line[len("run "):]
				if in, run, ok := strings.Cut(m.run, " "); ok {
					m.in, m.run = in, run
				}
			}
		}
		if m.from == "" || m.to == "" {
			return nil, fmt.Errorf("%s: a block is not complete: %q", name, block)
		}
		list = append(list, m)
	}
	return list, nil
}

// failed finds the first test that says so.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)|^panic: (test timed out)|^(panic|fatal error): `)

// plant returns the file, which is under root, with the bug in it.
func (m *mutant) plant(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.from+"\n")); n != 1 {
		return nil, fmt.Errorf("the line is there %d times", n)
	}
	return bytes.Replace(text, []byte(m.from+"\n"), []byte(m.to+"\n"), 1), nil
}

// try returns which test catches the bug; empty: none.
func (m *mutant) try(dir string) (by string, err error) {
	text, err := m.plant(".")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, text, 0o644); err != nil {
		return "", err
	}
	whole, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {whole: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "mutant.test")
	if out, err := exec.Command("go", "test", "-overlay", list, "-c", "-o", binary, "./"+m.in).CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %s", out)
	}
	test := exec.Command(binary, "-test.failfast", "-test.timeout=100s", "-test.run="+m.run)
	test.Dir = m.in
	out, err := test.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &exit):
		return "", err
	}
	if f := failed.FindStringSubmatch(string(out)); f != nil {
		return f[1] + f[2] + f[3], nil
	}
	return "", fmt.Errorf("the tests end with %v and do not say why", err)
}
