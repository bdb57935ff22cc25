package metrics

import (
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/peer"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// truth is a yes or no as a number.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// bytesPerSecond turns a rate of ours into Prometheus' base unit.
func bytesPerSecond(bits int64) float64 { return float64(bits) / 8 }

// seconds turns microseconds into Prometheus' base unit.
func seconds(us int64) float64 { return (time.Duration(us) * time.Microsecond).Seconds() }

// nodeRows tell of this node and of the network as it sees it.
var nodeRows = []row{
	{"meshmpi_node_info", "This node; 1.", gauge, []string{"node", "site", "network", "pace"}, func(s *Snapshot, put put) {
		put(1, s.Status.Self.Name, s.Status.Self.Site, s.Status.Network, s.Shape.Mode)
	}},
	{"meshmpi_certificate_expiry_timestamp_seconds", "When this node's certificate ends, Unix time.", gauge, nil, func(s *Snapshot, put put) {
		put(float64(s.Status.CertExpires.Unix()))
	}},
	{"meshmpi_warnings", "Warnings that meshctl status shows.", gauge, nil, func(s *Snapshot, put put) { put(float64(len(s.Status.Warnings))) }},
	{"meshmpi_hubs", "Hubs that this node knows by an address.", gauge, nil, func(s *Snapshot, put put) { put(float64(len(s.Status.Hubs))) }},
	{"meshmpi_hubs_up", "Hubs with which the control session is up.", gauge, nil, func(s *Snapshot, put put) {
		n := 0.0
		for _, h := range s.Status.Hubs {
			n += truth(h.Up)
		}
		put(n)
	}},
	{"meshmpi_nodes_known", "Nodes of a site that are not revoked, this one included.", gauge, site, func(s *Snapshot, put put) {
		for _, x := range s.Sites.Sites {
			put(float64(x.Nodes), x.Site)
		}
	}},
	{"meshmpi_nodes_up", "Of these, nodes that a hub or this node sees up.", gauge, site, func(s *Snapshot, put put) {
		for _, x := range s.Sites.Sites {
			put(float64(x.NodesUp), x.Site)
		}
	}},
	{"meshmpi_nodes_reachable", "Of these, other nodes to which this one has a path that works now.", gauge, site, readReachable},
	{"meshmpi_site_uplink_limit_bytes_per_second", "What a site can send to others, where it is declared.", gauge, site, func(s *Snapshot, put put) {
		for _, x := range s.Sites.Sites {
			putRate(put, x.Up, x.Site)
		}
	}},
	{"meshmpi_site_downlink_limit_bytes_per_second", "What a site can receive from others, where it is declared.", gauge, site, func(s *Snapshot, put put) {
		for _, x := range s.Sites.Sites {
			putRate(put, x.Down, x.Site)
		}
	}},
	{"meshmpi_site_link_limit_bytes_per_second", "What the way between two sites carries, where it is declared.", gauge, []string{"a", "b"}, func(s *Snapshot, put put) {
		for _, x := range s.Sites.Links {
			putRate(put, x.Bandwidth, x.A, x.B)
		}
	}},
}

// site is the label of what is told of each site.
var site = []string{"site"}

// putRate puts a rate that is there; 0 is none.
func putRate(put put, bits int64, labels ...string) {
	if bits > 0 {
		put(bytesPerSecond(bits), labels...)
	}
}

func readReachable(s *Snapshot, put put) {
	n := map[string]float64{}
	for _, p := range s.Status.Nodes {
		if p.Path != nil && p.Path.Works && !p.Revoked {
			n[p.Site]++
		}
	}
	for _, x := range s.Sites.Sites {
		put(n[x.Site], x.Site)
	}
}

// ofPeer are the labels of what is told of each peer.
var ofPeer = []string{"peer", "site"}

// peerRows tell of the nodes that this one has been talking to lately.
var peerRows = []row{
	{"meshmpi_peers", "Peers by the kind of path in use; none: no path works.", gauge, []string{"kind"}, func(s *Snapshot, put put) {
		n := map[peer.Kind]float64{}
		eachPeer(s, func(_ api.NodeStatus, p *api.Path) {
			if !p.Works {
				n[peer.KindNone]++
				return
			}
			n[p.Kind]++
		})
		for k := peer.KindNone; k <= peer.KindNative; k++ {
			put(n[k], k.String())
		}
	}},
	{"meshmpi_peer_path_info", "The path to a peer; 1.", gauge, []string{"peer", "site", "kind"}, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(1, n.Name, n.Site, p.Kind.String()) })
	}},
	{"meshmpi_peer_path_up", "1: the last probe of the path to a peer was answered.", gauge, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(truth(p.Works), n.Name, n.Site) })
	}},
	{"meshmpi_peer_rtt_seconds", "Round trip to a peer, smoothed, as probes measure it.", gauge, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) {
			if p.RTT > 0 {
				put(seconds(p.RTT), n.Name, n.Site)
			}
		})
	}},
	{"meshmpi_peer_loss_ratio", "Probes of the path to a peer that are lost, smoothed.", gauge, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(p.Loss, n.Name, n.Site) })
	}},
	{"meshmpi_peer_mtu_bytes", "The largest packet known to pass to a peer.", gauge, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) {
			if p.MTU > 0 {
				put(float64(p.MTU), n.Name, n.Site)
			}
		})
	}},
	{"meshmpi_peer_transmit_bytes_total", "Sealed bytes sent to a peer.", counter, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(float64(p.TxBytes), n.Name, n.Site) })
	}},
	{"meshmpi_peer_transmit_packets_total", "Sealed packets sent to a peer.", counter, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(float64(p.TxPkts), n.Name, n.Site) })
	}},
	{"meshmpi_peer_receive_bytes_total", "Sealed bytes that have come from a peer and were authentic.", counter, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(float64(p.RxBytes), n.Name, n.Site) })
	}},
	{"meshmpi_peer_no_path_packets_total", "Packets to a peer that were dropped for want of a path.", counter, ofPeer, func(s *Snapshot, put put) {
		eachPeer(s, func(n api.NodeStatus, p *api.Path) { put(float64(p.NoPath), n.Name, n.Site) })
	}},
}

func eachPeer(s *Snapshot, f func(api.NodeStatus, *api.Path)) {
	for _, n := range s.Status.Nodes {
		if n.Path != nil {
			f(n, n.Path)
		}
	}
}

// serviceRows tell of what this node does for others, and of what was lost in it.
var serviceRows = []row{
	{"meshmpi_relay_nodes", "Nodes bound to this relay.", gauge, nil, func(s *Snapshot, put put) {
		if s.Relay != nil {
			put(float64(s.Relay.Bindings))
		}
	}},
	{"meshmpi_relay_forwarded_packets_total", "Packets that this relay has forwarded.", counter, nil, func(s *Snapshot, put put) {
		if s.Relay != nil {
			put(float64(s.Relay.Packets))
		}
	}},
	{"meshmpi_relay_forwarded_bytes_total", "Bytes that this relay has forwarded, its own headers included.", counter, nil, func(s *Snapshot, put put) {
		if s.Relay != nil {
			put(float64(s.Relay.Bytes))
		}
	}},
	{"meshmpi_relay_dropped_packets_total", "Packets that this relay has dropped.", counter, []string{"reason"}, readRelayDrops},
	{"meshmpi_exec_sessions", "Commands of other nodes that run here.", gauge, nil, func(s *Snapshot, put put) { put(float64(s.Sessions)) }},
	{"meshmpi_jobs_meeting", "Jobs whose ranks find their rank 0 through this node now.", gauge, nil, func(s *Snapshot, put put) { put(float64(s.Meetings)) }},
	{"meshmpi_hint_programs", "Programs on this host that may tell of their traffic.", gauge, nil, func(s *Snapshot, put put) { put(float64(s.Programs)) }},
	{"meshmpi_hint_alltoall_hosts", "Hosts of this site in the widest all-to-all under way, as programs tell; 0: none.", gauge, nil, func(s *Snapshot, put put) {
		put(float64(s.Asked.Hosts))
	}},
	{"meshmpi_hint_matb_bytes_per_second", "The lowest rate that a program has set, where one has.", gauge, nil, func(s *Snapshot, put put) { putRate(put, s.Asked.MATB) }},
	{"meshmpi_hint_pattern_parts", "The parts into which a job's pattern divides the link, where one does.", gauge, nil, func(s *Snapshot, put put) {
		if s.Asked.Parts > 0 {
			put(float64(s.Asked.Parts) / hint.Whole)
		}
	}},
	{"meshmpi_dropped_total", "What a part of the node has refused or lost, by reason.", counter, []string{"part", "reason"}, func(s *Snapshot, put put) {
		for _, d := range s.Drops {
			put(float64(d.Count), d.Part, d.Reason)
		}
	}},
}

func readRelayDrops(s *Snapshot, put put) {
	if s.Relay == nil {
		return
	}
	d := s.Relay.Drops
	for _, x := range []struct {
		reason string
		n      uint64
	}{
		{"malformed", d.Malformed}, {"unknown", d.Unknown}, {"expired", d.Expired}, {"forged", d.Forged}, {"replayed", d.Replayed},
		{"unbound", d.Unbound}, {"absent", d.Absent}, {"refused", d.Refused}, {"unsent", d.Unsent},
	} {
		put(float64(x.n), x.reason)
	}
}
