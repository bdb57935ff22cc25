// Package programs holds small MPI programs in C that tests, the demo and the
// benchmarks compile with Debian's MPI compilers and run unmodified, and their
// twins in Go.
package programs

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed c/*.c c/*.h
var sources embed.FS

// Compile compiles a program with an MPI compiler (mpicc.openmpi, mpicc.mpich)
// into dir, and returns the executable's path.
func Compile(dir, name, compiler string) (string, error) {
	src, err := sources.ReadFile("c/" + name + ".c")
	if err != nil {
		return "", err
	}
	header, err := sources.ReadFile("c/mark.h")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, name+"-"+filepath.Ext(compiler)[1:])
	for path, text := range map[string][]byte{out + ".c": src, filepath.Join(dir, "mark.h"): header} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return "", err
		}
	}
	if text, err := exec.Command(compiler, "-O2", "-o", out, out+".c", "-lm").CombinedOutput(); err != nil {
		return "", fmt.Errorf("programs: %s %s: %w\n%s", compiler, name, err, text)
	}
	return out, nil
}

// Import paths of programs in Go: ours, and the examples that users copy.
const (
	inGo     = "github.com/meshmpi/meshmpi/integration/programs/go/"
	examples = "github.com/meshmpi/meshmpi/mpi/examples/"
)

// Build builds a program in Go, without cgo, into dir, and returns the executable's
// path. It must run inside this module.
func Build(ctx context.Context, dir, name string) (string, error) {
	return build(ctx, filepath.Join(dir, name+"-go"), inGo+name)
}

// Example is Build of an example of package mpi, whose executable has its name.
func Example(ctx context.Context, dir, name string) (string, error) {
	return build(ctx, filepath.Join(dir, name), examples+name)
}

func build(ctx context.Context, out, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("programs: go build %s: %w\n%s", path, err, text)
	}
	return out, nil
}
