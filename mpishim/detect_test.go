package mpishim

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDetectRealPrograms(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path string
		want       Kind
	}{
		{"script", script, ""},
		{"no MPI", "/bin/sh", ""},
		{"Go", exe, Go},
		{"Go, stripped", pmihello(t), Go},
		{"Go without package mpi", filepath.Join(goroot(t), "bin", "go"), ""},
	} {
		if got, why, err := Detect(tt.path); got != tt.want || err != nil || why == "" {
			t.Errorf("%s: got %q (%s), %v, want %q", tt.name, got, why, err, tt.want)
		}
	}
	for kind, compiler := range installed() {
		t.Run(string(kind), func(t *testing.T) {
			prog := build(t, compiler)
			if got, why, err := Detect(prog); got != kind || err != nil {
				t.Errorf("direct: got %q (%s), %v", got, why, err)
			}
			// A program that reaches MPI only through a library beside it.
			lib, src, user := filepath.Join(dir, "libuser.so"), filepath.Join(dir, "u.c"), filepath.Join(dir, "user-"+string(kind))
			os.WriteFile(src, []byte("void f(void);int main(void){f();return 0;}\n"), 0o644)
			os.WriteFile(filepath.Join(dir, "l.c"), []byte("#include <mpi.h>\nvoid f(void){MPI_Init(0,0);}\n"), 0o644)
			for _, args := range [][]string{
				{compiler, "-shared", "-fPIC", "-o", lib, filepath.Join(dir, "l.c")},
				{"gcc", "-o", user, src, lib, "-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined"},
			} {
				if out, err := osexec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
			}
			if got, why, err := Detect(user); got != kind || err != nil {
				t.Errorf("through a library: got %q (%s), %v", got, why, err)
			}
		})
	}
}

// goroot is where Go is installed.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := osexec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestHoldsAny(t *testing.T) {
	far := strings.Repeat("x", 1<<20-3) // a word on the border of what is read at a time
	for text, want := range map[string]bool{"": false, "a.word": true, "a.wor": false, far + "a.word": true, far + far + "b": false} {
		if got := holdsAny(strings.NewReader(text), "a.word", "another"); got != want {
			t.Errorf("%d bytes: got %t, want %t", len(text), got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		names []string
		paths map[string]string
		want  Kind
	}{
		{[]string{"libc.so.6", "libmpi.so.40"}, nil, OpenMPI},
		{[]string{"libmpi.so.12", "libopen-rte.so.12"}, nil, OpenMPI},
		{[]string{"libmpifort.so.12", "libmpi.so.12"}, nil, MPICH},
		{[]string{"libmpi.so.12"}, map[string]string{"libmpi.so.12": "/opt/intel/oneapi/mpi/2021.9/lib/libmpi.so.12"}, Intel},
		{[]string{"libmpich.so.12"}, nil, MPICH},
		{[]string{"libmpirical.so.1"}, nil, ""},
		{nil, nil, ""},
	} {
		if got, _ := classify(tt.names, tt.paths); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.names, got, tt.want)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Launcher{
		"mpirun (Open MPI) 4.1.4\n":        {Kind: OpenMPI, Major: 4},
		"mpirun.openmpi (OpenRTE) 4.1.4\n": {Kind: OpenMPI, Major: 4},
		"mpirun (Open MPI) 5.0.3\n":        {Kind: OpenMPI, Major: 5},
		"prterun (PRRTE) 3.0.5\n":          {Kind: OpenMPI, Major: 5},
		"HYDRA build details:\n    Version:                                 4.0.2": {Kind: MPICH, Major: 4},
		"Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307":        {Kind: Intel, Major: 2021},
		"something else 1.2": {},
	} {
		if k, major := parseVersion(text); k != want.Kind || major != want.Major {
			t.Errorf("%q: got %q %d, want %+v", text, k, major, want)
		}
	}
}
