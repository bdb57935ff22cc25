// Package sites holds what a network's administrators declare of its sites: how
// fast each site's uplink and downlink are, how fast the way between two sites is,
// and whether a site's nodes trust their LAN. It is what hubs keep and send, what
// nodes remember, and what pacing and paths ask.
//
// It is data and look-ups: it keeps no file, speaks to nobody, measures nothing
// and paces nothing. Rates are bits per second, 0: not declared. Of a link may also
// be declared that nobody knows what it carries and that nodes are to measure it.
package sites

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/meshmpi/meshmpi/internal/rate"
	"github.com/meshmpi/meshmpi/mesh/cert"
)

// Bounds of what may be declared. The fullest set takes less than half a
// mebibyte on the wire.
const (
	MaxSites = 1024
	MaxPairs = 2048
	MaxText  = 1 << 20 // bytes of JSON
)

// Measured is what stands for a rate, where rates are set and told, of a link that
// is to be measured.
const Measured int64 = math.MinInt64

// maxVersion is the largest number that every reader of JSON keeps exact.
const maxVersion = 1 << 53

// Limits is everything declared. It is a value: nobody changes its slices, and
// the With methods return another.
type Limits struct {
	// Version grows with every change, and of two sets the one with the larger
	// counts; 0: nothing has ever been declared.
	Version uint64 `json:"version"`
	Sites   []Site `json:"sites"` // by name; only sites of which something is declared
	Pairs   []Pair `json:"pairs"` // by A, then B
}

// Site is what a site's own link carries, and what its LAN may.
type Site struct {
	Name string `json:"site"`
	Up   int64  `json:"up,omitempty"`   // from the site to others
	Down int64  `json:"down,omitempty"` // from others to the site

	MeasureUp   bool `json:"measure_up,omitempty"` // Up is to be measured, and 0
	MeasureDown bool `json:"measure_down,omitempty"`

	Native bool `json:"native,omitempty"` // its nodes reach each other over their LAN, in clear
}

// Pair is what the way between two sites carries, in either direction.
type Pair struct {
	A    string `json:"a"` // A < B
	B    string `json:"b"`
	Rate int64  `json:"rate"`

	Measure bool `json:"measure,omitempty"` // Rate is to be measured, and 0
}

// Parse reads Limits from JSON and checks all of it. Fields that it does not know
// are ignored, and so are entries that declare nothing it knows: both are a newer
// version's.
func Parse(b []byte) (Limits, error) {
	if len(b) > MaxText {
		return Limits{}, fmt.Errorf("sites: %d bytes are more than %d", len(b), MaxText)
	}
	var l Limits
	if err := json.Unmarshal(b, &l); err != nil { // whose text quotes what it does not like, however long
		return Limits{}, fmt.Errorf("sites: %.200s", err)
	}
	l.Sites = slices.DeleteFunc(l.Sites, func(s Site) bool { return s == Site{Name: s.Name} })
	l.Pairs = slices.DeleteFunc(l.Pairs, func(p Pair) bool { return p.Rate == 0 && !p.Measure })
	return l.checked(Limits{})
}

// Check reports what in l nobody may declare.
func (l Limits) Check() error {
	switch {
	case l.Version > maxVersion:
		return fmt.Errorf("sites: version %d is out of bounds", l.Version)
	case len(l.Sites) > MaxSites:
		return fmt.Errorf("sites: the limits of %d sites are declared, of %d at most; clear some with meshctl site set SITE --clear", len(l.Sites), MaxSites)
	case len(l.Pairs) > MaxPairs:
		return fmt.Errorf("sites: the limits of %d pairs of sites are declared, of %d at most; clear some with meshctl site link A B --clear", len(l.Pairs), MaxPairs)
	case !slices.IsSortedFunc(l.Sites, strictly(compareSites)) || !slices.IsSortedFunc(l.Pairs, strictly(comparePairs)):
		return errors.New("sites: entries are not in order, or twice there")
	}
	for _, s := range l.Sites {
		if err := check(s.Up, s.Down, s.Name); err != nil {
			return err
		}
		if s.MeasureUp && s.Up != 0 || s.MeasureDown && s.Down != 0 {
			return fmt.Errorf("sites: a link of site %s is both declared and to be measured", s.Name)
		}
	}
	for _, p := range l.Pairs {
		if p.A >= p.B {
			return fmt.Errorf("sites: the pair of %.64q and %.64q is not in order", p.A, p.B)
		}
		if err := check(p.Rate, 0, p.A, p.B); err != nil {
			return err
		}
		if p.Measure && p.Rate != 0 {
			return fmt.Errorf("sites: the link between sites %s and %s is both declared and to be measured", p.A, p.B)
		}
	}
	return nil
}

// check reports what is wrong with names, or with rates that are not 0.
func check(r1, r2 int64, names ...string) error {
	for _, name := range names {
		if err := cert.ValidLabel(name); err != nil {
			return fmt.Errorf("sites: %w", err)
		}
	}
	for _, r := range []int64{r1, r2} {
		if r == 0 {
			continue
		}
		if err := rate.Check(r); err != nil {
			return fmt.Errorf("sites: %s: %w", strings.Join(names, "–"), err)
		}
	}
	return nil
}

// strictly turns an order into one in which nothing may stand twice.
func strictly[T any](compare func(a, b T) int) func(a, b T) int {
	return func(a, b T) int { return cmp.Or(compare(a, b), -1) }
}

func compareSites(a, b Site) int { return strings.Compare(a.Name, b.Name) }

func comparePairs(a, b Pair) int {
	return cmp.Or(strings.Compare(a.A, b.A), strings.Compare(a.B, b.B))
}

// Of returns what is declared of a site's own link; what is to be measured is 0.
func (l Limits) Of(site string) (up, down int64) {
	s := l.site(site)
	return s.Up, s.Down
}

// Native reports whether a site's nodes may reach each other over their LAN, in clear.
func (l Limits) Native(site string) bool { return l.site(site).Native }

func (l Limits) site(name string) Site {
	if i, ok := slices.BinarySearchFunc(l.Sites, Site{Name: name}, compareSites); ok {
		return l.Sites[i]
	}
	return Site{}
}

// Pair returns what is declared of the way between two sites, named in any order;
// what is to be measured is 0.
func (l Limits) Pair(a, b string) int64 { return l.way(a, b).Rate }

func (l Limits) way(a, b string) Pair {
	if i, ok := slices.BinarySearchFunc(l.Pairs, pair(a, b, 0), comparePairs); ok {
		return l.Pairs[i]
	}
	return Pair{}
}

// Between returns the limit of what goes from one site to another: the least of
// the one's uplink, the other's downlink and the way between them. It is 0, no
// limit, where none of these is declared, and within a site.
func (l Limits) Between(from, to string) int64 {
	if from == to {
		return 0
	}
	up, _ := l.Of(from)
	_, down := l.Of(to)
	var least int64
	for _, r := range []int64{up, down, l.Pair(from, to)} {
		if r != 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least
}

// pair puts the names in order.
func pair(a, b string, r int64) Pair { return Pair{A: min(a, b), B: max(a, b), Rate: r} }
