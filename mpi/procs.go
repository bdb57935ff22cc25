package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/meshmpi/meshmpi/internal/boot"
	"github.com/meshmpi/meshmpi/mpi/internal/engine"
)

// record is what the others have to know of a process: how to reach it and where
// it is. As text it is "HOST SITE ROOM CARD".
type record struct {
	host, site string
	room       room
	card       string
}

// room is the processors of a host that a process may run on: how many, and a name
// for which. As text it is "COUNT/NAME".
type room struct {
	processors int // 0: unknown
	name       string
}

func (r record) encode() string {
	return fmt.Sprintf("%s %s %d/%s %s", url.QueryEscape(r.host), url.QueryEscape(r.site), r.room.processors, url.QueryEscape(r.room.name), r.card)
}

func parseRecord(s string) (r record, err error) {
	host, rest, ok1 := strings.Cut(s, " ")
	site, rest, ok2 := strings.Cut(rest, " ")
	where, card, ok3 := strings.Cut(rest, " ")
	count, name, ok4 := strings.Cut(where, "/")
	n, err := strconv.ParseUint(count, 10, 16)
	if !ok1 || !ok2 || !ok3 || !ok4 || err != nil || len(s) > mostRecord {
		return r, fmt.Errorf("%.60q is no record of a process of ours", s)
	}
	r.room.processors = int(n)
	if r.host, err = url.QueryUnescape(host); err != nil {
		return r, fmt.Errorf("record of a process: %w", err)
	}
	if r.site, err = url.QueryUnescape(site); err != nil {
		return r, fmt.Errorf("record of a process: %w", err)
	}
	if r.room.name, err = url.QueryUnescape(name); err != nil {
		return r, fmt.Errorf("record of a process: %w", err)
	}
	r.card = card
	return r, nil
}

// mostRecord bounds a record: a card, and three escaped names.
const mostRecord = 4096

// ownRecord says where this process is.
func (w *World) ownRecord(o *options) record {
	r := record{host: o.host, site: o.site, card: string(w.eng.Card())}
	if _, together := w.launcher.(inProcess); !together { // else hosts are made up
		r.room = processors()
	}
	if o.room != (room{}) {
		r.room = o.room
	}
	if o.hostGiven {
		return r
	}
	r.site = os.Getenv("MESH_SITE")
	if r.host = os.Getenv("MESH_NODE"); r.host == "" {
		r.host, _ = os.Hostname() // unknown ones are together
		if id, err := boot.ID(); err == nil {
			r.host += " " + id
		}
	}
	return r
}

// location is where a process is, in numbers of this process's own.
type location struct{ host, site, room int32 }

// table is what is known of all processes, by their numbers in the engine.
type table struct {
	mu      sync.Mutex // guards what follows
	records []record
	places  []location
	byCard  map[string]engine.Proc
	hosts   map[string]int32
	sites   map[string]int32
	rooms   map[string]int32
}

// fill reads the records of the whole job.
func (t *table) fill(l Launcher) error {
	keys := make([]string, l.Size())
	for i := range keys {
		keys[i] = recordKey(i)
	}
	values, err := l.GetAll(keys)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.init()
	for i, v := range values {
		r, err := parseRecord(v)
		if err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
		t.add(engine.Proc(i), r)
	}
	return nil
}

// siteNumbers are the sites of the job's ranks, numbered alike at all of them.
func (t *table) siteNumbers(size int) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	sites := make([]int, size)
	for i := range sites {
		sites[i] = int(t.places[i].site)
	}
	return sites
}

func (t *table) init() {
	t.byCard, t.hosts, t.sites, t.rooms = map[string]engine.Proc{}, map[string]int32{}, map[string]int32{}, map[string]int32{}
}

// add takes note of a process.
func (t *table) add(p engine.Proc, r record) {
	for int(p) >= len(t.records) { // the engine may know others, which have connected
		t.records, t.places = append(t.records, record{}), append(t.places, location{})
	}
	t.records[p], t.places[p] = r, location{number(t.hosts, r.host), number(t.sites, r.site), number(t.rooms, r.host+" "+r.room.name)}
	t.byCard[r.card] = p
}

// load is how many processes may run on how many processors; 0 of these: unknown.
type load struct{ processes, processors int }

// loads are those of these processes, by room.
func (t *table) loads(procs []engine.Proc) map[int32]load {
	t.mu.Lock()
	defer t.mu.Unlock()
	loads := map[int32]load{}
	for _, p := range procs {
		at := t.places[p].room
		loads[at] = load{loads[at].processes + 1, t.records[p].room.processors}
	}
	return loads
}

// neighbours counts the processes on a process's host, itself included.
func (t *table) neighbours(p int) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.places {
		if at.host == t.places[p].host {
			n++
		}
	}
	return n
}

// number gives each name the next number.
func number(known map[string]int32, name string) int32 {
	n, ok := known[name]
	if !ok {
		n = int32(len(known))
		known[name] = n
	}
	return n
}

func (w *World) placeOf(p engine.Proc) location {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	return w.table.places[p]
}

// resolve finds the card of a process of the job for the engine.
func (w *World) resolve(_ context.Context, p engine.Proc) ([]byte, error) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	return []byte(w.table.records[p].card), nil
}

// Node returns the name of the machine that a rank runs on, and Site that of its
// site.
func (c *Comm) Node(rank int) (host, site string) {
	if rank < 0 || rank >= c.Size() {
		return "", ""
	}
	t := &c.w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.records[c.group.procs[rank]]
	host, _, _ = strings.Cut(r.host, " ")
	return host, r.site
}

// namesOf packs the records of processes, for a process of another job.
func (w *World) namesOf(procs []engine.Proc) []int64 {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	texts := make([]string, len(procs))
	for i, p := range procs {
		texts[i] = w.table.records[p].encode()
	}
	return packText(strings.Join(texts, "\n"))
}

// procsOf is the inverse: processes that are not known yet get to be.
func (w *World) procsOf(names []int64) ([]engine.Proc, error) {
	text, err := unpackText(names)
	if err != nil {
		return nil, err
	}
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	var procs []engine.Proc
	for line := range strings.SplitSeq(text, "\n") {
		r, err := parseRecord(line)
		if err != nil {
			return nil, err
		}
		p, known := w.table.byCard[r.card]
		if !known {
			added, err := w.eng.AddProcs([]byte(r.card))
			if err != nil {
				return nil, err
			}
			p = added[0]
			w.table.add(p, r)
		}
		procs = append(procs, p)
	}
	return procs, nil
}

// packText makes numbers of a text: its length, and eight bytes in each.
func packText(s string) []int64 {
	out := []int64{int64(len(s))}
	b := append([]byte(s), make([]byte, 7)...)
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(b)))
	}
	return out
}

// unpackText is the inverse.
func unpackText(v []int64) (string, error) {
	if len(v) == 0 || v[0] < 0 || v[0] > int64(len(v)-1)*8 {
		return "", fmt.Errorf("%d numbers are no text", len(v))
	}
	var b []byte
	for _, n := range v[1:] {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return string(b[:v[0]]), nil
}
