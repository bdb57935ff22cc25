// Package api is what a running meshd says and does for local programs, over
// HTTP with JSON bodies on the unix socket in its state directory. It holds the
// message types and the client; package node serves it.
//
// Anybody on the machine may ask; who asks is known by the socket's peer
// credentials, and what changes the network is for root and the daemon's own
// user. Every answer carries Version; fields are added, never changed.
package api

import (
	"time"

	"github.com/meshmpi/meshmpi/mesh/peer"
)

// Version is that of the message types.
const Version = 1

// Status answers GET /v1/status.
type Status struct {
	Version     int          `json:"version"`
	Network     string       `json:"network"`
	Domain      string       `json:"domain"`
	CIDR4       string       `json:"cidr4"`
	CIDR6       string       `json:"cidr6"`
	TUN         string       `json:"tun"`
	Listen      uint16       `json:"listen"` // UDP port
	CertExpires time.Time    `json:"cert_expires"`
	Self        NodeStatus   `json:"self"`
	Nodes       []NodeStatus `json:"nodes"` // self included, ordered by site and name
	Hubs        []HubStatus  `json:"hubs"`
	Warnings    []string     `json:"warnings,omitempty"`
	Drops       Drops        `json:"drops"`
}

// NodeStatus is what this node knows of a node.
type NodeStatus struct {
	Name    string    `json:"name"`
	Site    string    `json:"site"`
	Addr4   string    `json:"addr4"`
	Addr6   string    `json:"addr6"`
	ID      peer.ID   `json:"id"`
	Self    bool      `json:"self,omitempty"`
	Up      bool      `json:"up"`
	Hub     bool      `json:"hub,omitempty"`
	Relay   bool      `json:"relay,omitempty"`
	Revoked bool      `json:"revoked,omitempty"`
	Cores   int       `json:"cores,omitempty"` // 0: not said
	Path    *Path     `json:"path,omitempty"`  // absent while the node has not been talked to
	Expires time.Time `json:"cert_expires"`
}

// Path says how packets reach a node.
type Path struct {
	Node    string    `json:"node"`
	Kind    peer.Kind `json:"kind"`
	Via     []string  `json:"via"` // relays' names, nearest first
	Addr    string    `json:"addr,omitempty"`
	RTT     int64     `json:"rtt_us"`
	MTU     int       `json:"mtu"` // 0: not yet probed
	Loss    float64   `json:"loss"`
	Works   bool      `json:"works"` // the last probe was answered
	TxBytes uint64    `json:"tx_bytes"`
	TxPkts  uint64    `json:"tx_packets"`
	RxBytes uint64    `json:"rx_bytes"` // sealed, like TxBytes
	NoPath  uint64    `json:"no_path"`  // packets dropped for want of a path
	Standby []Path    `json:"standby,omitempty"`
}

// PathReply answers GET /v1/path.
type PathReply struct {
	Version int    `json:"version"`
	Paths   []Path `json:"paths"`
}

// PingReply answers POST /v1/ping.
type PingReply struct {
	Version int   `json:"version"`
	RTT     int64 `json:"rtt_us"`
	Path    Path  `json:"path"`
}

// HubStatus is the state of the control session with a hub.
type HubStatus struct {
	Addr  string    `json:"addr"`
	Name  string    `json:"name,omitempty"`
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	RTT   int64     `json:"rtt_us"`
	Error string    `json:"error,omitempty"`
}

// Drops counts what was lost in this node since it started.
type Drops struct {
	Events     uint64 `json:"events"`
	Unsent     uint64 `json:"unsent"`
	Overflowed uint64 `json:"overflowed"`
	Replayed   uint64 `json:"replayed"` // pings and initiations
	Alien      uint64 `json:"alien"`
	NoOwner    uint64 `json:"no_owner"`
	Local      uint64 `json:"local"` // connections to the local socket, beyond a user's share
}

// Env answers GET /v1/env: what MPI launchers must be told on this node.
type Env struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	Site    string `json:"site"`
	Addr4   string `json:"addr4"`
	TUN     string `json:"tun"`
	CIDR4   string `json:"cidr4"`
	Domain  string `json:"domain"`
	BinDir  string `json:"bin_dir"` // where meshd's own binaries lie
}

// JobRequest asks PUT /v1/jobs/KEY to note where a job's rank 0 serves: on a port
// of this node's virtual address, for ranks that show the secret. The note must
// be put again within half a minute. It lies at the first of Owners, names or
// addresses as the launcher has them, that is a node of the network; all ranks
// name the same. DELETE takes it back; it needs no secret.
type JobRequest struct {
	Owners []string `json:"owners,omitempty"`
	Port   uint16   `json:"port"`
	Secret string   `json:"secret,omitempty"`
}

// JobReply answers GET /v1/jobs/KEY?owner=A&owner=B, after ten seconds at most.
// Without Addr rank 0 has not come yet, and it is worth while to ask again.
type JobReply struct {
	Version int    `json:"version"`
	Addr    string `json:"addr,omitempty"` // address:port
	Secret  string `json:"secret,omitempty"`
}

// TicketRequest asks POST /v1/ticket for leave to run a command on a node. Key
// is an SSH public key in authorized_keys form, made for this one use. The
// caller's user is taken from the socket, never from the request.
type TicketRequest struct {
	Host  string `json:"host"`
	Login string `json:"login,omitempty"` // other user there; default: what policy maps the caller to
	Key   string `json:"key"`
}

// TokenRequest asks POST /v1/tokens for a token. Hubs only.
type TokenRequest struct {
	Site string        `json:"site,omitempty"`
	Uses int           `json:"uses,omitempty"`
	TTL  time.Duration `json:"ttl,omitempty"`
}

// TokenReply carries the token.
type TokenReply struct {
	Version int       `json:"version"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// TokenInfo is one line of GET /v1/tokens.
type TokenInfo struct {
	ID      string    `json:"id"`
	Site    string    `json:"site"`
	Uses    int       `json:"uses_left"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state"` // good, used, expired or revoked
}

// TokensReply answers GET /v1/tokens.
type TokensReply struct {
	Version int         `json:"version"`
	Tokens  []TokenInfo `json:"tokens"`
}

// SiteRequest asks POST /v1/sites to declare what a site's own link carries, in
// bits per second, and whether its nodes use their LAN; 0 and nil leave what is
// declared. Clear takes all of it back. Hubs only.
type SiteRequest struct {
	Site  string `json:"site"`
	Up    int64  `json:"up_bps,omitempty"`
	Down  int64  `json:"down_bps,omitempty"`
	Clear bool   `json:"clear,omitempty"`

	MeasureUp   bool `json:"measure_up,omitempty"` // instead of a rate: nodes are to find it
	MeasureDown bool `json:"measure_down,omitempty"`

	Native *bool `json:"native,omitempty"` // whether the site's nodes reach each other over their LAN, in clear
}

// LinkRequest asks POST /v1/links to declare what the way between two sites
// carries, in bits per second, or to take that back. Hubs only.
type LinkRequest struct {
	A         string `json:"a"`
	B         string `json:"b"`
	Bandwidth int64  `json:"bandwidth_bps,omitempty"`
	Clear     bool   `json:"clear,omitempty"`

	Measure bool `json:"measure,omitempty"` // instead of a rate: nodes are to find it
}

// SitesReply answers GET /v1/sites, and what changes it with what holds then.
type SitesReply struct {
	Version int          `json:"version"`
	Change  uint64       `json:"change"` // of two answers the one with the larger is newer; 0: nothing was ever declared
	Sites   []SiteStatus `json:"sites"`  // by name
	Links   []LinkStatus `json:"links"`  // by A and B: what is declared between sites
}

// SiteStatus is what this node knows of a site. Rates are bits per second, 0: not
// declared.
type SiteStatus struct {
	Site    string `json:"site"`
	Nodes   int    `json:"nodes"` // that are not revoked
	NodesUp int    `json:"nodes_up"`
	Up      int64  `json:"up_bps"`   // from the site to others
	Down    int64  `json:"down_bps"` // from others to the site

	MeasureUp   bool   `json:"measure_up,omitempty"` // it is not declared but to be measured
	MeasureDown bool   `json:"measure_down,omitempty"`
	Found       *Found `json:"up_found,omitempty"` // of the uplink of this node's site

	Native bool `json:"native,omitempty"` // its nodes reach each other over their LAN, in clear
}

// Found is what a link was found to carry.
type Found struct {
	Rate int64 `json:"bps"`
	Age  int64 `json:"age_ms"` // since it was last measured; -1: not since the node has started
}

// LinkStatus is what the way between two sites carries, in either direction.
type LinkStatus struct {
	A         string `json:"a"` // A < B
	B         string `json:"b"`
	Bandwidth int64  `json:"bandwidth_bps"`

	Measure bool   `json:"measure,omitempty"` // it is not declared but to be measured
	Found   *Found `json:"found,omitempty"`   // from this node's site to the other
}

// Event is one line of GET /v1/events.
type Event struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Node    string    `json:"node,omitempty"`
	Text    string    `json:"text"`
}

// Failure is the body of every answer that is not 2xx.
type Failure struct {
	Version int    `json:"version"`
	Error   string `json:"error"`
}
