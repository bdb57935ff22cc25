package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
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
