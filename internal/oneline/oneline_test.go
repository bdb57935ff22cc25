package oneline

import (
	"errors"
	"io"
	"testing"
)

func TestJoin(t *testing.T) {
	if err := Join(nil, nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	err := Join(io.EOF, nil, io.ErrClosedPipe)
	if want := "EOF; io: read/write on closed pipe"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if !errors.Is(err, io.EOF) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v is not all of its errors", err)
	}
}
