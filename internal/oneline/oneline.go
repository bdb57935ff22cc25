// Package oneline joins errors without breaking the line, which errors.Join does: what
// goes wrong is told in one line.
package oneline

import "strings"

// Join returns an error that is all of errs, but for those that are nil; nil if there is
// none. Its text has theirs, with "; " between them.
func Join(errs ...error) error {
	var text []string
	var some []error
	for _, err := range errs {
		if err != nil {
			text, some = append(text, err.Error()), append(some, err)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return &joined{strings.Join(text, "; "), some}
}

type joined struct {
	text string
	errs []error
}

func (j *joined) Error() string   { return j.text }
func (j *joined) Unwrap() []error { return j.errs }
