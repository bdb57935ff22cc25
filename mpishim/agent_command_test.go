package mpishim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgentCommand runs what a node's shell is given: the library is put before
// Hydra's proxy where it is there, before nothing else, and never changes words.
func TestAgentCommand(t *testing.T) {
	dir := t.TempDir()
	proxy := filepath.Join(dir, hydraProxy)
	if err := os.WriteFile(proxy, []byte("#!/bin/sh\necho \"$LD_PRELOAD|$*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(command string) string {
		t.Helper()
		cmd := exec.Command("sh", "-c", AgentCommand(command))
		cmd.Env = []string{"MESH_BIN=" + dir, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := run(`"` + proxy + `" --control-port h:1 "a b"`); got != "|--control-port h:1 a b" {
		t.Errorf("without the library: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, preload), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// An empty file is no library: the loader says so and goes on.
	if got := run(`"` + proxy + `" --proxy-id 0`); got != filepath.Join(dir, preload)+"|--proxy-id 0" {
		t.Errorf("with the library: %q", got)
	}
	if got := AgentCommand("orted -mca x y"); got != "orted -mca x y" {
		t.Errorf("another launcher's command became %q", got)
	}
}
