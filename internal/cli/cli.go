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
	"reflect"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

// Exit codes.
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
	ctx, err := Parse(parser, os.Args[1:])
	if err != nil {
		Exit(name, Usage(fmt.Errorf("%w; see %s --help", err, name)))
	}
	Exit(name, ctx.Run())
}

// Parse parses a command line. It refuses a flag or an argument that is given
// and empty: somebody's variable is not set, and what is left out means
// something else, such as all nodes.
func Parse(parser *kong.Kong, args []string) (*kong.Context, error) {
	ctx, err := parser.Parse(args)
	if err != nil {
		return nil, err
	}
	for _, part := range ctx.Path {
		value := part.Positional
		if part.Flag != nil {
			value = part.Flag.Value
		}
		if value == nil || value.Target.Kind() != reflect.String || strings.TrimSpace(value.Target.String()) != "" {
			continue
		}
		if part.Flag != nil {
			return nil, fmt.Errorf("--%s is empty, as from a variable that is not set; leave the flag out if nothing is meant", value.Name)
		}
		return nil, fmt.Errorf("<%s> is empty, as from a variable that is not set", value.Name)
	}
	return ctx, nil
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
