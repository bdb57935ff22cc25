package share

import (
	"testing"
	"time"
)

// manyToOne is n sites of k nodes each, one of which sends, to a site with one node, all
// of it by simulation: 5 ms each way.
func manyToOne(t *testing.T, n, k int, b int64, d time.Duration) (use, worst float64) {
	var senders []*site
	r := New(nodeID(200), Config{})
	r.Downlink(0, b)
	type capped struct {
		at   time.Duration
		i    int
		data []byte
	}
	var flying []capped
	for i := range n {
		s := newSite(t, k, uint64(i), map[Site]int64{"": b, "r": b})
		s.calm = time.Hour
		s.want(0, "r", b)
		senders = append(senders, s)
	}
	var hist [][]int64
	sum, over, samples := 0.0, 0.0, 0
	for now := time.Duration(0); now < d; now += ms {
		var now1 []int64
		all := int64(0)
		for _, s := range senders {
			s.run(now)
			x := s.use(0, "r")
			now1 = append(now1, x)
			all += x
		}
		hist = append(hist, now1)
		if now > d/2 {
			sum += float64(min(all, b)) / float64(b)
			over = max(over, float64(all)/float64(b))
			samples++
		}
		if now%(10*ms) == 0 && len(hist) > 15 {
			var list []Arrival
			total := int64(0)
			avg := make([]int64, n)
			for i := range n {
				for _, h := range hist[len(hist)-15 : len(hist)-5] {
					avg[i] += h[i] / 10
				}
				total += avg[i]
			}
			for i := range n {
				x := avg[i]
				if total > b {
					x = int64(float64(x) * float64(b) / float64(total))
				}
				list = append(list, Arrival{nodeID(i), "s" + string(rune('a'+i)), x})
			}
			r.Arriving(now, list)
		}
		out, _ := r.Step(now)
		for _, m := range out {
			flying = append(flying, capped{now + 5*ms, int(m.To[0]) - 1, m.Data})
		}
		for len(flying) > 0 && flying[0].at <= now {
			f := flying[0]
			flying = flying[1:]
			s := senders[f.i]
			if err := s.nodes[0].Capped(s.now, nodeID(200), "r", f.data); err != nil {
				t.Fatal(err)
			}
			s.step(0)
		}
	}
	return sum / float64(samples), over
}

// TestIncastManySites: senders that are capped use what they are given, although the
// other nodes of their sites keep a reserve, and the caps stay.
func TestIncastManySites(t *testing.T) {
	for _, k := range []int{1, 8} {
		for _, n := range []int{2, 5, 10, 16, 24} {
			use, worst := manyToOne(t, n, k, 1000*mbit, 4*time.Second)
			if use < 0.9 || worst > 1.5 {
				t.Errorf("one node each of %d sites of %d sends: %.2f of the downlink is used, at worst %.2f comes", n, k, use, worst)
			}
		}
	}
}
