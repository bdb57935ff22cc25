package pmi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one call of Spawn.
const (
	maxSpawnApps = 64
	maxSpawnArgs = 2000 // of one program
	maxSpawnKeys = 256  // given to the new job, and hints of one program
	maxSpawns    = 64   // of one rank at a time
	maxSpawnID   = 1<<31 - 1
)

// SpawnApp is one program of a job to start.
type SpawnApp struct {
	N    int // ranks
	Prog string
	Args []string
	Info map[string]string // hints of MPI 4.1 §11.8.4: wdir, host, …
}

// SpawnRequest asks the launcher for a job: MPI_Comm_spawn_multiple.
type SpawnRequest struct {
	Apps []SpawnApp
	Keys map[string]string // the new job finds these in its key-value space

	// Joins says that the new job will tell by Client.Joined when it has met who spawns
	// it. A launcher of ours counts it as started only then: until it has, a death among
	// its ranks is a failure of Spawn's, and none of theirs.
	Joins bool
}

// Ranks counts the ranks of the job.
func (r SpawnRequest) Ranks() int {
	n := 0
	for _, a := range r.Apps {
		n += a.N
	}
	return n
}

// messages packs r, a message for each program. most is the launcher's bound of
// a value.
func (r SpawnRequest) messages(most int) ([]message, error) {
	if len(r.Apps) == 0 || len(r.Apps) > maxSpawnApps {
		return nil, fmt.Errorf("pmi: spawn %d programs: 1 to %d are allowed", len(r.Apps), maxSpawnApps)
	}
	keys, err := packKeys(r.Keys, most)
	if err != nil {
		return nil, err
	}
	var list []message
	for i, a := range r.Apps {
		m := message{cmd: "spawn", lines: true}
		m = m.with("nprocs", itoa(a.N)).with("execname", a.Prog).
			with("totspawns", itoa(len(r.Apps))).with("spawnssofar", itoa(i+1))
		for j, arg := range a.Args {
			m = m.with("arg"+itoa(j+1), arg)
		}
		m = m.with("argcnt", itoa(len(a.Args))).with("preput_num", itoa(len(keys)))
		for j, p := range keys {
			m = m.with("preput_key_"+itoa(j), p.key).with("preput_val_"+itoa(j), p.value)
		}
		m = m.with("info_num", itoa(len(a.Info)))
		for j, k := range slices.Sorted(maps.Keys(a.Info)) {
			m = m.with("info_key_"+itoa(j), k).with("info_val_"+itoa(j), a.Info[k])
		}
		if err := a.check(m); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// check refuses what the launcher at the other end would not understand.
func (a SpawnApp) check(m message) error {
	switch {
	case a.N < 1 || a.N > MaxSize:
		return fmt.Errorf("pmi: spawn %d ranks: between 1 and %d can run", a.N, MaxSize)
	case a.Prog == "":
		return errors.New("pmi: spawn: no program is named")
	case len(a.Args) > maxSpawnArgs || len(a.Info) > maxSpawnKeys:
		return fmt.Errorf("pmi: spawn: a program has at most %d arguments and %d hints", maxSpawnArgs, maxSpawnKeys)
	case len(m.append(nil)) > maxBlock/2:
		return fmt.Errorf("pmi: spawn: arguments and keys have at most %d bytes", maxBlock/2)
	}
	for _, p := range m.pairs {
		if strings.ContainsAny(p.value, "\n\r\x00") || strings.ContainsAny(p.key, "=\n\r\x00") || len(p.key)+len(p.value) > maxLine/2 {
			return fmt.Errorf("pmi: spawn: %.40q: a line of at most %d bytes is allowed", p.value, maxLine/2)
		}
	}
	return nil
}

// packKeys makes pairs of keys and values, cut and escaped, in a fixed order.
func packKeys(keys map[string]string, most int) ([]pair, error) {
	var list []pair
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if err := checkKey(k, maxKey); err != nil {
			return nil, err
		}
		parts, err := pieces(keys[k], most)
		if err != nil {
			return nil, err
		}
		for i, v := range parts {
			list = append(list, pair{pieceKey(k, i), v})
		}
	}
	if len(list) > maxSpawnKeys {
		return nil, fmt.Errorf("pmi: a job starts with at most %d keys", maxSpawnKeys)
	}
	return list, nil
}

// pieceKey is where piece i of a key's value lies.
func pieceKey(key string, i int) string {
	if i == 0 {
		return key
	}
	return key + "%" + itoa(i)
}

// request is what has been collected.
func (s *spawning) request() SpawnRequest {
	return SpawnRequest{Apps: s.apps, Keys: joinKeys(s.keys), Joins: s.joins}
}

// spawning collects the messages of a request until it is whole.
type spawning struct {
	apps  []SpawnApp
	keys  []pair
	total int
	id    int // 0: none
	joins bool
}

// add takes the next message and reports whether it was the last.
func (s *spawning) add(m message) (whole bool, err error) {
	total, err := m.number("totspawns", 1, maxSpawnApps)
	if err != nil {
		return false, err
	}
	if _, err := m.number("spawnssofar", len(s.apps)+1, len(s.apps)+1); err != nil {
		return false, err
	}
	if s.total == 0 {
		s.total = total
	}
	if s.total != total || len(s.apps) >= total {
		return false, fmt.Errorf("spawn of %d programs, then of %d: %w", s.total, total, errLine)
	}
	app, keys, err := parseSpawn(m)
	if err != nil {
		return false, err
	}
	if s.apps = append(s.apps, app); len(s.apps) == 1 {
		s.keys = keys
		s.joins = m.get("mesh_joins") != ""
		if _, ok := m.lookup("mesh_id"); ok {
			if s.id, err = m.number("mesh_id", 1, maxSpawnID); err != nil {
				return false, err
			}
		}
	}
	return len(s.apps) == total, nil
}

// parseSpawn reads one program of a request.
func parseSpawn(m message) (a SpawnApp, keys []pair, err error) {
	values := make(map[string]string, len(m.pairs))
	for _, p := range m.pairs {
		values[p.key] = p.value
	}
	if a.N, err = m.number("nprocs", 1, MaxSize); err != nil {
		return a, nil, err
	}
	if a.Prog = values["execname"]; a.Prog == "" {
		return a, nil, fmt.Errorf("spawn without execname: %w", errLine)
	}
	args, err := optional(values, "argcnt", maxSpawnArgs)
	if err != nil {
		return a, nil, err
	}
	for i := range args {
		a.Args = append(a.Args, values["arg"+itoa(i+1)])
	}
	n, err := optional(values, "preput_num", maxSpawnKeys)
	if err != nil {
		return a, nil, err
	}
	for i := range n {
		keys = append(keys, pair{values["preput_key_"+itoa(i)], values["preput_val_"+itoa(i)]})
	}
	if n, err = optional(values, "info_num", maxSpawnKeys); err != nil {
		return a, nil, err
	}
	for i := range n {
		if a.Info == nil {
			a.Info = map[string]string{}
		}
		a.Info[values["info_key_"+itoa(i)]] = values["info_val_"+itoa(i)]
	}
	return a, keys, nil
}

// optional reads a count that may be left out.
func optional(values map[string]string, key string, most int) (int, error) {
	text, ok := values[key]
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("spawn with %s=%.40q: %w", key, text, errLine)
	}
	return n, nil
}
