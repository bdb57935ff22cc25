package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		err  error
		line string
		code int
	}{
		{nil, "", 0},
		{errors.New("it broke; mend it"), "x: it broke; mend it", Failed},
		{Usage(errors.New("--n is wrong")), "x: --n is wrong", BadUsage},
		{fmt.Errorf("more: %w", Usage(errors.New("--n is wrong"))), "x: more: --n is wrong", BadUsage},
		{errors.Join(errors.New("one"), errors.New(" two\r\n")), "x: one; two", Failed},
		{errors.New("a node called \x1b[2Jb1"), "x: a node called ?[2Jb1", Failed},
		{fmt.Errorf("status: %w", context.Canceled), "x: interrupted", Failed},
	} {
		if line, code := verdict("x", tc.err); line != tc.line || code != tc.code {
			t.Errorf("verdict(%v) = %q, %d; want %q, %d", tc.err, line, code, tc.line, tc.code)
		}
	}
}

// TestParseEmpty: what is given, and empty, is told of: it is no default.
func TestParseEmpty(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"do", "x"}, ""},
		{[]string{"do", "--on", "a", "x", ""}, ""}, // the rest is for others
		{[]string{"--state", "", "do", "x"}, "--state is empty"},
		{[]string{"--state=", "do", "x"}, "--state is empty"},
		{[]string{"do", "--on", " ", "x"}, "--on is empty"},
		{[]string{"do", ""}, "<what> is empty"},
		{[]string{"do"}, "expected"},
	} {
		var c struct {
			State string
			Do    struct {
				On   string
				What string   `arg:""`
				Rest []string `arg:"" optional:""`
			} `cmd:""`
		}
		parser, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(parser, tt.args)
		if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.says)
		}
	}
}
