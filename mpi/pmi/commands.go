package pmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// answer does what a rank asks. Its error ends the connection: errFinal after
// finalize, any other where the rank does not speak the protocol.
func (ss *session) answer(ctx context.Context, m message) error {
	s := ss.srv
	switch m.cmd {
	case "init":
		ss.answerInit(m)
	case "get_maxes":
		ss.say(newMessage("maxes", "rc", "0", "kvsname_max", itoa(maxName), "keylen_max", itoa(maxKey), "vallen_max", itoa(maxChunk)))
	case "get_my_kvsname":
		ss.say(newMessage("my_kvsname", "rc", "0", "kvsname", s.cfg.JobID))
	case "get_appnum":
		app := 0
		if s.cfg.Apps != nil {
			app = s.cfg.Apps[ss.rank]
		}
		ss.say(newMessage("appnum", "rc", "0", "appnum", itoa(app)))
	case "get_universe_size":
		size := s.cfg.Universe
		if size == 0 {
			size = -1
		}
		ss.say(newMessage("universe_size", "rc", "0", "size", itoa(size)))
	case "put":
		ss.answerPut(m)
	case "get":
		ss.answerGet(m)
	case "barrier_in":
		s.barrierIn(ss)
	case "publish_name", "unpublish_name", "lookup_name":
		ss.answerName(m)
	case "spawn":
		return ss.answerSpawn(ctx, m)
	case "mesh_subscribe":
		s.subscribe(ss)
	case "mesh_withdraw":
		return ss.answerWithdraw(m)
	case "mesh_joined":
		ss.answerJoined(m)
	case "abort":
		code, err := m.number("exitcode", -1<<31, 1<<31-1)
		if err != nil {
			code = 1
		}
		s.abort(ss.rank, code)
	case "finalize":
		s.part(ss)
		ss.say(newMessage("finalize_ack", "rc", "0")) // before it leaves: when all have left, the server may end
		s.leave(ss.rank, ss, finalized, 0)
		return errFinal
	default:
		return fmt.Errorf("pmi: rank %d: unknown command %.40q: %w", ss.rank, m.cmd, errLine)
	}
	return nil
}

func (ss *session) answerInit(m message) {
	if m.get("pmi_version") != "1" {
		ss.say(newMessage("response_to_init", "pmi_version", "1", "pmi_subversion", "1", "rc", "-1", "msg", "this_launcher_speaks_PMI-1"))
		return
	}
	ft := "0"
	if ss.srv.cfg.FaultTolerant {
		ft = "1"
	}
	ss.say(newMessage("response_to_init", "pmi_version", "1", "pmi_subversion", "1", "rc", "0", "mesh", "1", "joins", "1", "ft", ft))
}

// verdict is an answer that says yes for "", else no and why.
func verdict(cmd, why string) message {
	if why == "" {
		return newMessage(cmd, "rc", "0", "msg", "success")
	}
	return newMessage(cmd, "rc", "-1", "msg", why)
}

func (ss *session) answerPut(m message) {
	s := ss.srv
	why := "no_such_key-value_space"
	if m.get("kvsname") == s.cfg.JobID {
		s.mu.Lock()
		why = s.put(m.get("key"), m.get("value"))
		s.mu.Unlock()
	}
	ss.say(verdict("put_result", why))
}

func (ss *session) answerGet(m message) {
	s := ss.srv
	s.mu.Lock()
	value, ok := s.kvs[m.get("key")]
	s.mu.Unlock()
	if !ok || m.get("kvsname") != s.cfg.JobID {
		ss.say(newMessage("get_result", "rc", "-1", "msg", "no_such_key", "value", "unknown"))
		return
	}
	ss.say(newMessage("get_result", "rc", "0", "msg", "success", "value", value))
}

func (ss *session) answerName(m message) {
	s, name := ss.srv, m.get("service")
	switch m.cmd {
	case "publish_name":
		ss.say(verdict("publish_result", s.names.publish(s, ss.rank, name, m.get("port"))))
	case "unpublish_name":
		why := ""
		if !s.names.unpublish(name) {
			why = "no_such_name"
		}
		ss.say(verdict("unpublish_result", why))
	case "lookup_name":
		if port, ok := s.names.lookup(name); ok {
			ss.say(verdict("lookup_result", "").with("port", port))
		} else {
			ss.say(verdict("lookup_result", "no_such_name"))
		}
	}
}

// answerSpawn collects a request and has the launcher carry it out, while the rank's
// other commands go on.
func (ss *session) answerSpawn(ctx context.Context, m message) error {
	whole, err := ss.spawn.add(m)
	if err != nil || !whole {
		return err
	}
	req, id := ss.spawn.request(), ss.spawn.id
	ss.spawn = spawning{}
	answer := func(codes []int, err error) {
		m := spawnResult(codes, err)
		if id > 0 {
			m = m.with("mesh_id", itoa(id))
		}
		ss.say(m)
	}
	if ss.srv.cfg.Spawn == nil {
		answer(nil, errors.New("this launcher starts no further jobs"))
		return nil
	}
	ctx, withdraw := context.WithCancel(ctx)
	if err := ss.asking(id, withdraw); err != nil {
		withdraw()
		answer(nil, err)
		return nil
	}
	ss.spawns.Go(func() {
		defer withdraw()
		codes, err := ss.srv.cfg.Spawn(ctx, req)
		ss.asked(id)
		answer(codes, err)
	})
	return nil
}

// asking takes note of a request for a job.
func (ss *session) asking(id int, withdraw func()) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.withdraw) >= maxSpawns || ss.withdraw[id] != nil {
		return fmt.Errorf("a rank can ask for %d jobs at a time, each with a number of its own", maxSpawns)
	}
	if ss.withdraw == nil {
		ss.withdraw = map[int]func(){}
	}
	ss.withdraw[id] = withdraw
	return nil
}

// asked takes note of its end.
func (ss *session) asked(id int) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.withdraw, id)
}

// answerWithdraw ends a request whose answer nobody waits for any more.
func (ss *session) answerWithdraw(m message) error {
	id, err := m.number("mesh_id", 1, maxSpawnID)
	if err != nil {
		return err
	}
	ss.mu.Lock()
	withdraw := ss.withdraw[id]
	ss.mu.Unlock()
	if withdraw != nil {
		withdraw()
	}
	return nil
}

// answerJoined passes on what a rank says of its spawned job.
func (ss *session) answerJoined(m message) {
	if joined := ss.srv.cfg.Joined; joined != nil {
		var err error
		if why, failed := m.failed(); failed {
			err = errors.New(why)
		}
		joined(err)
	}
	ss.say(newMessage("mesh_joined_ack", "rc", "0"))
}

func spawnResult(codes []int, err error) message {
	if err != nil {
		return verdict("spawn_result", word(err.Error()))
	}
	if !slices.ContainsFunc(codes, func(c int) bool { return c != 0 }) { // thousands would be longer than a line may be
		return verdict("spawn_result", "")
	}
	texts := make([]string, len(codes))
	for i, c := range codes {
		texts[i] = itoa(c)
	}
	return verdict("spawn_result", "").with("errcodes", strings.Join(texts, ","))
}

// joinKeys puts values together that were cut, for NewServer to cut again.
func joinKeys(pairs []pair) map[string]string {
	raw := make(map[string]string, len(pairs))
	for _, p := range pairs {
		raw[p.key] = p.value
	}
	keys := map[string]string{}
	for key, value := range raw {
		text, more, err := parseHead(value)
		if err != nil || strings.Contains(key, "%") {
			continue
		}
		for i := range more {
			text += raw[pieceKey(key, i+1)]
		}
		keys[key] = unescape(text)
	}
	return keys
}

// word makes one word of a sentence, as messages on the wire are.
func word(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(s), "_")
	return s[:min(len(s), most)]
}
