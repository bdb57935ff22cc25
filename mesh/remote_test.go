package mesh

import (
	"slices"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// TestTellRTT: a round trip is told at first, when it has changed by more than a
// quarter, and when it is not known any more.
func TestTellRTT(t *testing.T) {
	var told []time.Duration
	m := &Mesh{cfg: Config{PathRTT: func(_ peer.Node, rtt time.Duration) { told = append(told, rtt) }}}
	r := &remote{}
	for _, ms := range []time.Duration{0, 20, 24, 16, 26, 26, 15, 0, 0, 1} {
		m.tellRTT(r, ms*time.Millisecond)
	}
	for i := range told {
		told[i] /= time.Millisecond
	}
	if want := []time.Duration{20, 26, 15, 0, 1}; !slices.Equal(told, want) {
		t.Errorf("told %v ms, want %v", told, want)
	}
	(&Mesh{}).tellRTT(r, time.Second) // nobody asks
}
