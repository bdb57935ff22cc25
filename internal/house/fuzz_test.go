package house

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decoderName is what functions are called that make sense of bytes. Whoever
// writes a decoder under another name is found by review, not by this test.
var decoderName = regexp.MustCompile(`^(Parse|parse|Decode|decode|Unmarshal|unmarshal|Open|open|Read|read|Input|Unwrap|HandleBound|Classify|destination|dispatch)`)

// trusted lists functions that match but decode nothing from outside, each with
// the reason.
var trusted = map[string]string{
	"mesh/udp.Read":           "fills buffers from the kernel; the parser of its control messages is fuzzed",
	"mesh/udp.ReadFrom":       "the same for one buffer",
	"mpi/internal/trunk.Read": "gives out what a channel has brought; its packets' decoder is fuzzed",
	"mpi/mpitest.Read":        "a network in memory",
	"mpi/mpitest.read":        "a network in memory",
	"relay.UnmarshalJSON":     "ParseGrant under the name that encoding/json calls",
	"tun.ReadFrom":            "passes on what gVisor's sockets have read",
}

// outside are the rooms that see bytes from the network, from tokens or from
// other users' processes.
var outside = []string{"mesh", "ice", "relay", "dns", "internal/wire", "internal/rate", "mpishim", "internal/state", "internal/node", "tun", "shaper", "mpi"}

// TestEveryDecoderIsFuzzed finds every function that takes bytes or text and is
// called like a decoder, and wants a fuzz target that reaches it in its package.
func TestEveryDecoderIsFuzzed(t *testing.T) {
	used := map[string]bool{}
	for _, f := range readModule(t) {
		if !matches(f.path, outside) || within(f.path, "internal/simnet") {
			continue
		}
		reached := reachedByFuzz(f)
		for name := range decoders(f.files) {
			key := f.path + "." + name
			if _, ok := trusted[key]; ok {
				used[key] = true
				continue
			}
			if !reached[name] {
				t.Errorf("%s has no fuzz target: write one beside it, or say in the table why it needs none", key)
			} else {
				t.Logf("%s is fuzzed", key)
			}
		}
	}
	for key := range trusted {
		if !used[key] {
			t.Errorf("the table names %s, which is not there", key)
		}
	}
}

// decoders returns the names of functions and methods that look like decoders.
func decoders(files []*ast.File) map[string]bool {
	found := map[string]bool{}
	for _, file := range files {
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && decoderName.MatchString(fn.Name.Name) && takesBytes(fn.Type.Params) {
				found[fn.Name.Name] = true
			}
		}
	}
	return found
}

// takesBytes reports whether a parameter is bytes or text from somewhere.
func takesBytes(params *ast.FieldList) bool {
	for _, p := range params.List {
		switch t := p.Type.(type) {
		case *ast.ArrayType:
			switch e := t.Elt.(type) {
			case *ast.Ident:
				if e.Name == "byte" {
					return true
				}
			case *ast.ArrayType: // [][]byte
				if id, ok := e.Elt.(*ast.Ident); ok && id.Name == "byte" {
					return true
				}
			}
		case *ast.SelectorExpr:
			if t.Sel.Name == "Reader" || t.Sel.Name == "RawMessage" {
				return true
			}
		}
	}
	return false
}

// reachedByFuzz returns every name that a fuzz target of the package mentions,
// itself or through functions of the package that it calls.
func reachedByFuzz(f *folder) map[string]bool {
	calls := map[string][]string{}
	var queue []string
	for _, file := range slices.Concat(f.files, f.tests) {
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			calls[fn.Name.Name] = append(calls[fn.Name.Name], mentioned(fn.Body)...)
			if strings.HasPrefix(fn.Name.Name, "Fuzz") {
				queue = append(queue, fn.Name.Name)
			}
		}
	}
	reached := map[string]bool{}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if reached[name] {
			continue
		}
		reached[name] = true
		queue = append(queue, calls[name]...)
	}
	return reached
}

// mentioned lists the identifiers in a function's body.
func mentioned(body *ast.BlockStmt) []string {
	var names []string
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			names = append(names, x.Name)
		case *ast.SelectorExpr:
			names = append(names, x.Sel.Name)
		}
		return true
	})
	return names
}
