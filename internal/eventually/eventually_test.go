package eventually

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stopped is a test that notes how it was stopped, and goes on.
type stopped struct {
	testing.TB
	text string
}

func (s *stopped) Helper() {}

func (s *stopped) Fatalf(format string, args ...any) {
	s.text = fmt.Sprintf(format, args...)
	panic(s)
}

// TestHolds: it looks at once and until it holds, ever less often, and gives up with
// a word about what it was.
func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		Holds(t, "nothing", func() bool { return true })
		if d := time.Since(began); d != 0 {
			t.Errorf("what holds already takes %v", d)
		}
		Holds(t, "a second", func() bool { looks++; return time.Since(began) >= time.Second })
		if d := time.Since(began); d > time.Second+longest || looks > 80 {
			t.Errorf("a second takes %v and %d looks", d, looks)
		}
		began = time.Now()
		s := &stopped{TB: t}
		defer func() {
			if recover() != s || !strings.Contains(s.text, "the moon falls") {
				t.Errorf("it says %q", s.text)
			}
			if d := time.Since(began); d < patience || d > patience+2*longest {
				t.Errorf("it gives up after %v", d)
			}
		}()
		Holds(s, "the moon falls", func() bool { return false })
	})
}
