package pmi

import "slices"

// The shared state of a job: its key-value space and its barrier.

// put stores a pair and returns "", or why not in a word. The caller holds mu,
// unless nobody else knows the server yet.
func (s *Server) put(key, value string) string {
	if len(key) == 0 || len(key) > maxKey || len(value) > maxChunk {
		return "key_or_value_too_long"
	}
	old, had := s.kvs[key]
	grown := s.bytes + int64(len(value)) - int64(len(old))
	if !had {
		grown += int64(len(key))
	}
	if grown > s.cfg.MaxBytes || !had && len(s.kvs) >= 64*(s.cfg.Size+16) {
		return "the_job's_key-value_space_is_full"
	}
	s.kvs[key], s.bytes = value, grown
	return ""
}

// barrierIn is a rank's coming to the barrier.
func (s *Server) barrierIn(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.ranks[ss.rank]
	switch {
	case r.s != ss || r.in: // in it already: the answer will serve for both
		return
	case s.broken(ss):
		return
	}
	r.in = true
	s.inside++
	if s.inside == s.living {
		s.release()
	}
}

// broken answers a rank that comes to a barrier to which not all can come; but if the
// job ends, by silence.
func (s *Server) broken(ss *session) bool {
	if s.cfg.FaultTolerant || s.living == s.cfg.Size {
		return false
	}
	if s.ending && slices.ContainsFunc(s.ranks, func(r rank) bool { return r.phase == dead }) {
		return true
	}
	for i := range s.ranks {
		if p := s.ranks[i].phase; p == dead || p == finalized {
			ss.push(brokenBarrier(i, p))
			return true
		}
	}
	return false
}

// checkBarrier looks at the barrier after a rank has left for good: without
// fault tolerance everybody who waits is let go with an error, with it the rest
// may be complete. The caller holds mu.
func (s *Server) checkBarrier(rank int, to phase) {
	switch {
	case s.inside == 0:
	case s.cfg.FaultTolerant:
		if s.inside == s.living {
			s.release()
		}
	default:
		b := brokenBarrier(rank, to)
		for i := range s.ranks {
			if r := &s.ranks[i]; r.in {
				r.in = false
				r.s.push(b)
			}
		}
		s.inside = 0
	}
}

// release lets everybody out of the barrier. The caller holds mu.
func (s *Server) release() {
	b := newMessage("barrier_out").append(nil)
	for i := range s.ranks {
		if r := &s.ranks[i]; r.in {
			r.in = false
			r.s.push(b)
		}
	}
	s.inside = 0
}

func brokenBarrier(rank int, p phase) []byte {
	what := "has_died"
	if p == finalized {
		what = "has_left"
	}
	return newMessage("barrier_out", "rc", "-1", "msg", "rank_"+itoa(rank)+"_"+what).append(nil)
}
