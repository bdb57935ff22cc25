package metrics

import (
	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/shaper/share"
)

// pacingRows tell how this node holds back what it sends to other sites. A link or
// peer appears when it is first talked to; a rate that has no limit is left out.
var pacingRows = []row{
	{"meshmpi_pacing_nodes", "Nodes of this site among which its links are shared.", gauge, nil, func(s *Snapshot, put put) { put(float64(s.Shape.Nodes)) }},
	{"meshmpi_pacing_uplink_rate_bytes_per_second", "What this node may send to all sites together now.", gauge, nil, func(s *Snapshot, put put) {
		putRate(put, s.Shape.Uplink)
	}},
	{"meshmpi_link_rate_bytes_per_second", "What this node may send to a site now.", gauge, site, ofLink(func(l api.ShapeLink, put put) { putRate(put, l.Rate, l.Site) })},
	{"meshmpi_link_share_bytes_per_second", "This node's equal share of the link to a site.", gauge, site, ofLink(func(l api.ShapeLink, put put) { putRate(put, l.Share, l.Site) })},
	{"meshmpi_link_capacity_bytes_per_second", "What all nodes of this site may send to another together.", gauge, site, ofLink(func(l api.ShapeLink, put put) { putRate(put, l.Whole, l.Site) })},
	{"meshmpi_link_rate_info", "Where the rate to a site comes from; 1.", gauge, []string{"site", "because"}, ofLink(func(l api.ShapeLink, put put) { put(1, l.Site, l.Why) })},
	{"meshmpi_link_backlog_bytes", "Bytes that wait for a site, before and after they are sealed.", gauge, []string{"site", "stage"}, ofLink(func(l api.ShapeLink, put put) {
		put(float64(l.Waiting), l.Site, unsealed)
		put(float64(l.Queued), l.Site, sealed)
	})},
	{"meshmpi_link_sent_bytes_total", "Bytes on the wire to a site, headers included, while there was a limit.", counter, site, ofLink(func(l api.ShapeLink, put put) {
		put(float64(l.Sent), l.Site)
	})},
	{"meshmpi_link_marked_packets_total", "Packets to a site that were told of congestion (ECN).", counter, site, ofLink(func(l api.ShapeLink, put put) { put(float64(l.Marked), l.Site) })},
	{"meshmpi_link_dropped_packets_total", "Packets to a site that found the pacer's queue full.", counter, site, ofLink(func(l api.ShapeLink, put put) { put(float64(l.Dropped), l.Site) })},
	{"meshmpi_link_healed_total", "Times that packets to a site were given up between the pacer's two stages.", counter, site, ofLink(func(l api.ShapeLink, put put) { put(float64(l.Healed), l.Site) })},
	{"meshmpi_link_given_bytes_total", "Bytes that this node could have sent to a site at once and has left to others of its own.", counter, site, ofLink(func(l api.ShapeLink, put put) { put(float64(l.Given), l.Site) })},
	{"meshmpi_link_taken_bytes_total", "Bytes to a site that others of this one have left to this node.", counter, site, ofLink(func(l api.ShapeLink, put put) { put(float64(l.Taken), l.Site) })},

	{"meshmpi_flow_backlog_packets", "Packets that wait for a peer, before and after they are sealed.", gauge, []string{"peer", "site", "stage"}, ofFlow(func(to string, p api.ShapePeer, put put) {
		put(float64(p.Waiting), p.Node, to, unsealed)
		put(float64(p.Queued), p.Node, to, sealed)
	})},
	{"meshmpi_flow_longest_wait_seconds", "Longest wait of a packet for a peer in the last 10 to 20 s.", gauge, []string{"peer", "site", "stage"}, ofFlow(func(to string, p api.ShapePeer, put put) {
		put(seconds(p.WorstWait), p.Node, to, unsealed)
		put(seconds(p.WorstQueue), p.Node, to, sealed)
	})},
	{"meshmpi_flow_sent_bytes_total", "Bytes on the wire to a peer, headers included, while there was a limit.", counter, ofPeer, ofFlow(func(to string, p api.ShapePeer, put put) {
		put(float64(p.Sent), p.Node, to)
	})},
	{"meshmpi_flow_marked_packets_total", "Packets to a peer that were told of congestion (ECN).", counter, ofPeer, ofFlow(func(to string, p api.ShapePeer, put put) {
		put(float64(p.Marked), p.Node, to)
	})},
	{"meshmpi_flow_dropped_packets_total", "Packets to a peer that found the pacer's queue full.", counter, ofPeer, ofFlow(func(to string, p api.ShapePeer, put put) {
		put(float64(p.Dropped), p.Node, to)
	})},
}

// The pacer's two stages, as values of a label.
const (
	unsealed = "unsealed"
	sealed   = "sealed"
)

func ofLink(f func(l api.ShapeLink, put put)) func(*Snapshot, put) {
	return func(s *Snapshot, put put) {
		for _, l := range s.Shape.Links {
			f(l, put)
		}
	}
}

func ofFlow(f func(to string, p api.ShapePeer, put put)) func(*Snapshot, put) {
	return func(s *Snapshot, put put) {
		for _, l := range s.Shape.Links {
			for _, p := range l.Peers {
				f(l.Site, p, put)
			}
		}
	}
}

// lendingRows tell what the nodes of this site lend to each other, of every link
// that has a limit.
var lendingRows = []row{
	{"meshmpi_lending_rate_bytes_per_second", "What the live shares give this node.", gauge, site, ofPool(func(x share.Share) float64 { return bytesPerSecond(x.Rate) })},
	{"meshmpi_lending_borrowed_bytes_per_second", "Of that, what is lent by others.", gauge, site, ofPool(func(x share.Share) float64 { return bytesPerSecond(x.Leased) })},
	{"meshmpi_lending_lent_bytes_per_second", "What this node lends to others.", gauge, site, ofPool(func(x share.Share) float64 { return bytesPerSecond(x.Lent) })},
	{"meshmpi_lending_cap_bytes_per_second", "What the receiving site allows all nodes of this one, where it has said.", gauge, site, func(s *Snapshot, put put) {
		for _, x := range s.Lending {
			putRate(put, x.Capped, siteOf(x))
		}
	}},
	{"meshmpi_lending_senders", "Nodes known to want more than their equal share, this one included.", gauge, site, ofPool(func(x share.Share) float64 { return float64(x.Senders) })},
	{"meshmpi_lending_answering_nodes", "Other nodes of this site that have answered lately.", gauge, site, ofPool(func(x share.Share) float64 { return float64(x.Answers) })},
	{"meshmpi_lending_sent_notices_total", "Notices sent to other nodes.", counter, nil, func(s *Snapshot, put put) { put(float64(s.Notices.Sent)) }},
	{"meshmpi_lending_heard_notices_total", "Notices heard from other nodes.", counter, nil, func(s *Snapshot, put put) { put(float64(s.Notices.Heard)) }},
}

func ofPool(value func(share.Share) float64) func(*Snapshot, put) {
	return func(s *Snapshot, put put) {
		for _, x := range s.Lending {
			put(value(x), siteOf(x))
		}
	}
}

// everySite stands for all other sites together; no site is called so.
const everySite = "*"

// siteOf names the site that a link leads to.
func siteOf(x share.Share) string {
	if x.To == "" {
		return everySite
	}
	return x.To
}
