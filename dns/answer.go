package dns

import (
	"encoding/binary"
	"net/netip"
	"slices"

	miekgdns "github.com/miekg/dns"
)

// Sizes, in bytes.
const (
	headerLen = 12                  // RFC 1035 §4.1.1
	maxQuery  = 4096                // longest question we read, from datagrams and streams alike
	minUDP    = miekgdns.MinMsgSize // what every client takes (RFC 1035 §4.2.1)
	maxUDP    = 4096                // longest datagram we answer with, whatever the client offers
	ednsUDP   = 1232                // what we offer: fits any path of IPv6 unfragmented
	maxStream = miekgdns.MaxMsgSize // RFC 1035 §4.2.2
)

// Bits of the third octet of a header (RFC 1035 §4.1.1).
const (
	bitQR      = 0x80
	maskOpcode = 0x78
)

// A query is one question, read and found to be for others to answer.
type query struct {
	raw   []byte // as the client sent it
	msg   *miekgdns.Msg
	limit int  // longest answer the client takes, bytes
	tcp   bool // asked over a stream
}

// decide reads the question raw from a client at from. It returns the answer
// if it is ours to give, or the query if it is to be forwarded; both are nil
// where silence is the answer. It retains nothing of raw beyond the query.
func (s *Server) decide(raw []byte, from netip.Addr, tcp bool) (answer []byte, forward *query) {
	s.count.queries.Add(1)
	if len(raw) < headerLen || len(raw) > maxQuery || raw[2]&bitQR != 0 {
		s.count.malformed.Add(1) // never answer an answer: two servers would talk for ever
		return nil, nil
	}
	if raw[2]&maskOpcode != 0 {
		s.count.refused.Add(1)
		return bare(raw, miekgdns.RcodeNotImplemented), nil
	}
	q := &query{raw: raw, msg: new(miekgdns.Msg), tcp: tcp, limit: maxStream}
	if binary.BigEndian.Uint16(raw[4:]) != 1 || questionEnd(raw) == 0 || q.msg.Unpack(raw) != nil || len(q.msg.Question) != 1 {
		s.count.malformed.Add(1)
		return bare(raw, miekgdns.RcodeFormatError), nil
	}
	opts := slices.DeleteFunc(slices.Clone(q.msg.Extra), func(rr miekgdns.RR) bool {
		return rr.Header().Rrtype != miekgdns.TypeOPT
	})
	if !tcp {
		q.limit = minUDP
		if len(opts) > 0 {
			q.limit = min(max(int(q.msg.IsEdns0().UDPSize()), minUDP), maxUDP)
		}
	}
	switch {
	case len(opts) > 1: // RFC 6891 §6.1.1
		s.count.malformed.Add(1)
		return s.rcode(q, miekgdns.RcodeFormatError), nil
	case len(opts) == 1 && q.msg.IsEdns0().Version() != 0: // RFC 6891 §6.1.3
		s.count.malformed.Add(1)
		return s.rcode(q, miekgdns.RcodeBadVers), nil
	}
	return s.route(q, from.Unmap().WithZone(""))
}

// route answers q, or returns it for forwarding, as the client is entitled to.
func (s *Server) route(q *query, from netip.Addr) (answer []byte, forward *query) {
	question := q.msg.Question[0]
	f, inside := s.find(miekgdns.CanonicalName(question.Name))
	local := s.local(from)
	switch {
	case transfer(question.Qtype),
		inside && (question.Qclass != miekgdns.ClassINET || question.Qtype == miekgdns.TypeANY),
		inside && !s.overlay(from),
		!inside && !local:
		s.count.refused.Add(1)
		return s.rcode(q, miekgdns.RcodeRefused), nil
	case !inside:
		return nil, q
	}
	s.count.answered.Add(1)
	m := s.reply(q)
	m.RecursionAvailable = local
	s.authoritative(m, f)
	return s.pack(m, q), nil
}

// transfer reports types that ask for more than one answer message, or are no
// types to ask for at all.
func transfer(qtype uint16) bool {
	switch qtype {
	case miekgdns.TypeAXFR, miekgdns.TypeIXFR, miekgdns.TypeMAILA, miekgdns.TypeMAILB,
		miekgdns.TypeOPT, miekgdns.TypeTSIG, miekgdns.TypeTKEY:
		return true
	}
	return false
}

// reply starts an answer to q. The question is the client's own, letter case
// and all, and so is the owner of every record that answers it.
func (s *Server) reply(q *query) *miekgdns.Msg {
	m := new(miekgdns.Msg)
	m.SetReply(q.msg)
	m.CheckingDisabled = q.msg.CheckingDisabled
	if opt := q.msg.IsEdns0(); opt != nil {
		m.SetEdns0(ednsUDP, opt.Do())
	}
	return m
}

// rcode answers q with a code alone.
func (s *Server) rcode(q *query, code int) []byte {
	m := s.reply(q)
	m.Rcode = code
	return s.pack(m, q)
}

// pack turns m into octets that q's client takes.
func (s *Server) pack(m *miekgdns.Msg, q *query) []byte {
	m.Compress = true
	m.Truncate(q.limit)
	if m.Truncated {
		s.count.truncated.Add(1)
	}
	raw, err := m.Pack()
	if err != nil || len(raw) > q.limit { // a name that unpacks and does not pack
		return bare(q.raw, miekgdns.RcodeServerFailure)
	}
	return raw
}

// bare answers a message that could not be read with its header alone.
func bare(raw []byte, code int) []byte {
	h := make([]byte, headerLen)
	copy(h, raw[:4])
	h[2] = h[2]&(maskOpcode|0x01) | bitQR // keep the opcode and RD
	h[3] = byte(code & 0x0f)
	return h
}
