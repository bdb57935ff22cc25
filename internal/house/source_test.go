package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/meshmpi/meshmpi"

// folder is one package of the module, as parsed source.
type folder struct {
	path  string // relative to the module, "." for its root
	files []*ast.File
	tests []*ast.File
}

// readModule parses every Go file of the module.
func readModule(t *testing.T) []*folder {
	t.Helper()
	root := filepath.Join("..", "..")
	byPath := map[string]*folder{}
	var order []*folder
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		d := byPath[rel]
		if d == nil {
			d = &folder{path: rel}
			byPath[rel] = d
			order = append(order, d)
		}
		if strings.HasSuffix(p, "_test.go") {
			d.tests = append(d.tests, f)
		} else {
			d.files = append(d.files, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// imports lists what files import: ours as folder paths, others whole.
func imports(files []*ast.File) (ours, theirs map[string]bool) {
	ours, theirs = map[string]bool{}, map[string]bool{}
	for _, f := range files {
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				continue
			}
			if rel, ok := strings.CutPrefix(p, module+"/"); ok {
				ours[rel] = true
			} else if strings.Contains(strings.Split(p, "/")[0], ".") {
				theirs[p] = true
			}
		}
	}
	return ours, theirs
}

// within reports whether folder p is dir or lies under it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// matches reports whether p lies within one of the folders.
func matches(p string, dirs []string) bool {
	for _, d := range dirs {
		if within(p, d) || path.Clean(d) == p {
			return true
		}
	}
	return false
}
