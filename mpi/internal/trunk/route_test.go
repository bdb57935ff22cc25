package trunk

import "testing"

// TestWindows: what all channels of a gateway may have under way is what it holds.
func TestWindows(t *testing.T) {
	for _, ranks := range []int{1, 2, 64, 128, 256, 512, 1024} {
		sites := make([]int, 2*ranks)
		for i := range sites {
			sites[i] = i / ranks
		}
		p := newPlan(sites, 4)
		if w := p.window(0, 1); w < 1024 || w > mostWindow {
			t.Errorf("%d ranks: a window of %d bytes", ranks, w)
		}
		sum := 0
		for a := range ranks {
			for b := ranks; b < 2*ranks; b++ {
				if p.gateway(0, p.lane(a, b)) == 0 {
					sum += p.window(0, 1)
				}
			}
		}
		if sum > mostHeld {
			t.Errorf("%d ranks: windows of %d MiB", ranks, sum>>20)
		}
	}
}
