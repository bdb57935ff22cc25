package mpishim

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Go programs that use package mpi are known by their functions' names.
const (
	goModule  = "github.com/meshmpi/meshmpi"
	goPackage = goModule + "/mpi"
)

// maxLibraries bounds the search through needed libraries.
const maxLibraries = 512

// Detect tells which MPI a program needs: a Go program by the functions of
// package mpi in it, any other by the libraries that its ELF file needs, directly
// or through others. It answers the empty Kind, and why, where the file cannot
// tell: scripts, Python (mpi4py loads its library late), static programs.
func Detect(path string) (k Kind, why string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return "", "it is no ELF program", nil
	}
	if usesGoMPI(f) {
		return Go, "it is a Go program that uses " + goPackage, nil
	}
	names, paths := neededLibraries(path)
	k, why = classify(names, paths)
	return k, why, nil
}

// usesGoMPI looks for functions of package mpi, or of those inside it, in the
// table that Go's runtime prints stack traces with, which stripping a program
// leaves alone. Build information names only modules, and ours holds more than
// package mpi; it decides where the table is not to be found.
func usesGoMPI(f *os.File) bool {
	info, err := buildinfo.Read(f)
	if err != nil {
		return false
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return false
	}
	for _, s := range e.Sections {
		if strings.HasSuffix(s.Name, ".gopclntab") { // .data.rel.ro.gopclntab where it may be loaded anywhere
			return holdsAny(s.Open(), goPackage+".", goPackage+"/")
		}
	}
	return slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == goModule })
}

// holdsAny reports whether one of the words occurs in what r reads.
func holdsAny(r io.Reader, words ...string) bool {
	const keep = 256 // bytes, longer than any word
	buf := make([]byte, 0, 1<<20)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for _, w := range words {
			if bytes.Contains(buf, []byte(w)) {
				return true
			}
		}
		if err != nil {
			return false
		}
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}

// classify knows an MPI by the names of libraries. libmpi.so.12 is the common
// ABI of MPICH and Intel MPI, and was the name of Open MPI 1.10's too.
func classify(names []string, paths map[string]string) (Kind, string) {
	has := func(prefix string) string {
		for _, n := range names {
			if strings.HasPrefix(n, prefix) {
				return n
			}
		}
		return ""
	}
	intel := func(name string) bool {
		p := strings.ToLower(paths[name])
		return strings.Contains(p, "intel") || strings.Contains(p, "oneapi") || strings.Contains(p, "impi/")
	}
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, "libmpich.so"):
			return MPICH, "it needs " + n
		case n == "libmpi.so.12" && has("libopen-rte.so") == "" && has("libopen-pal.so") == "":
			if intel(n) {
				return Intel, "it needs " + paths[n]
			}
			return MPICH, "it needs " + n + " (the MPICH ABI)"
		case strings.HasPrefix(n, "libmpi.so."):
			return OpenMPI, "it needs " + n
		}
	}
	return "", "it needs no MPI library that is known"
}

// neededLibraries follows DT_NEEDED from an ELF file, breadth first, the way
// ld.so searches. It returns all names and where those that exist were found.
func neededLibraries(path string) (names []string, paths map[string]string) {
	paths = map[string]string{}
	system := systemLibraryDirs("/etc/ld.so.conf")
	queue := []string{path}
	var inherited []string // DT_RPATH of the program counts for its libraries too
	for len(queue) > 0 && len(names) < maxLibraries {
		file := queue[0]
		queue = queue[1:]
		needed, rpath, runpath := dynamicSection(file)
		if file == path {
			inherited = rpath
		}
		dirs := slices.Concat(rpath, inherited, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), runpath, system)
		for _, n := range needed {
			if slices.Contains(names, n) {
				continue
			}
			names = append(names, n)
			if p := findLibrary(n, dirs); p != "" {
				paths[n] = p
				queue = append(queue, p)
			}
		}
	}
	return names, paths
}

func dynamicSection(path string) (needed, rpath, runpath []string) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, nil, nil
	}
	defer f.Close()
	needed, _ = f.ImportedLibraries()
	list := func(tag elf.DynTag) (dirs []string) {
		found, _ := f.DynString(tag)
		for _, s := range found {
			for _, d := range filepath.SplitList(s) {
				d = strings.ReplaceAll(d, "${ORIGIN}", "$ORIGIN")
				dirs = append(dirs, strings.ReplaceAll(d, "$ORIGIN", filepath.Dir(path)))
			}
		}
		return dirs
	}
	return needed, list(elf.DT_RPATH), list(elf.DT_RUNPATH)
}

func findLibrary(name string, dirs []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, d := range dirs {
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				return real
			}
			return p
		}
	}
	return ""
}

// systemLibraryDirs are the directories of an ld.so.conf and the built-in ones.
func systemLibraryDirs(conf string) []string {
	dirs := libraryConf(conf, 0)
	for _, d := range []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64"} {
		dirs = append(dirs, d)
		more, _ := filepath.Glob(d + "/*-linux-gnu*")
		dirs = append(dirs, more...)
	}
	return dirs
}

func libraryConf(conf string, depth int) (dirs []string) {
	raw, err := os.ReadFile(conf)
	if err != nil || depth > 4 {
		return nil
	}
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		f := strings.Fields(line)
		switch {
		case len(f) == 1:
			dirs = append(dirs, f[0])
		case len(f) == 2 && f[0] == "include":
			pattern := f[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(conf), pattern)
			}
			files, _ := filepath.Glob(pattern)
			for _, file := range files {
				dirs = append(dirs, libraryConf(file, depth+1)...)
			}
		}
	}
	return dirs
}
