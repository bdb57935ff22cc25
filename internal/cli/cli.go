// Package cli is what meshmpi's commands share: how they parse, how they say
// that something is wrong, and with which code they exit. It does nothing.
package cli

import (
	"errors"
	"fmt"
	"os"

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
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
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
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if u := (usageError{}); errors.As(err, &u) {
		os.Exit(BadUsage)
	}
	os.Exit(Failed)
}
