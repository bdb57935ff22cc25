// Package cli is what meshmpi's commands share: how they parse, how they say
// that something is wrong, and with which code they exit. It does nothing.
//
// Whatever is wrong is told in one line: the help, which would bury it, is for
// --help.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

// Exit codes (DESIGN §2).
const (
	Failed   = 1
	BadUsage = 2
)

// usageError marks an error as the caller's.
type usageError struct{ error }

// Usage marks err as bad usage: exit code 2.
func Usage(err error) error { return usageError{err} }

// Run parses the command line into c, runs the command chosen, and exits.
// bindings are passed to the commands' Run methods.
func Run(name, description string, c any, vars kong.Vars, bindings ...any) {
	parser, err := kong.New(c, kong.Name(name), kong.Description(description), vars,
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Bind(bindings...))
	if err != nil {
		panic(err) // the structs are wrong: a programmer's error
	}
	ctx, err := parser.Parse(os.Args[1:])
	if err != nil {
		Exit(name, Usage(fmt.Errorf("%w; see %s --help", err, name)))
	}
	Exit(name, ctx.Run())
}

// Exit ends the program: quietly on success, with one line on an error.
func Exit(name string, err error) {
	line, code := verdict(name, err)
	if line != "" {
		fmt.Fprintln(os.Stderr, line)
	}
	os.Exit(code)
}

// verdict returns what to say and the exit code.
func verdict(name string, err error) (line string, code int) {
	if err == nil {
		return "", 0
	}
	code = Failed
	if errors.Is(err, context.Canceled) {
		return name + ": interrupted", code
	}
	if u := (usageError{}); errors.As(err, &u) {
		code = BadUsage
	}
	return name + ": " + oneLine(err.Error()), code
}

// oneLine keeps what others say fit for a line, and off the terminal's controls.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return '?'
		}
		return r
	}, strings.Join(lines, "; "))
}
