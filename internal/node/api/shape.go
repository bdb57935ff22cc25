package api

import (
	"context"
	"net/http"
)

// ShapeReply answers GET /v1/shape: how this node shares the links of its site with
// the others. Rates are bits per second of bytes on the wire, 0: no limit.
type ShapeReply struct {
	Version  int            `json:"version"`
	Mode     string         `json:"mode"`   // live, static, off
	Nodes    int            `json:"nodes"`  // of this site that are counted
	Weight   int            `json:"weight"` // of this one, where what idle ones leave is divided
	Uplink   int64          `json:"uplink_bps"`
	Measured *Found         `json:"uplink_found,omitempty"` // of all nodes together, where the uplink is measured
	Links    []ShapeLink    `json:"links"`                  // by site
	Programs []ShapeProgram `json:"programs"`               // that say what they do
}

// ShapeLink is the way to another site. Counters begin when the link is first used,
// and count only while it has a limit.
type ShapeLink struct {
	Site    string      `json:"site"`
	Whole   int64       `json:"whole_bps"`       // what all nodes may send together
	Share   int64       `json:"share_bps"`       // this node's equal share of it
	Rate    int64       `json:"rate_bps"`        // what this node may send now
	Why     string      `json:"why"`             // where Rate comes from
	Set     int64       `json:"set_bps"`         // by meshctl shape set; 0: nothing
	Waiting int         `json:"waiting"`         // bytes, before they are sealed
	Queued  int         `json:"queued"`          // bytes, sealed
	Healed  uint64      `json:"healed"`          // times that packets were lost while they were sealed
	Given   uint64      `json:"given_bytes"`     // of what it could send at once, to other nodes of its site
	Taken   uint64      `json:"taken_bytes"`     // the same, from them
	Sent    uint64      `json:"sent_bytes"`      // of all peers, as are these:
	Marked  uint64      `json:"marked"`          // packets that were told of congestion
	Dropped uint64      `json:"dropped"`         // packets
	Peers   []ShapePeer `json:"peers"`           // by name
	Found   *Found      `json:"found,omitempty"` // where what goes to that site is measured by itself
}

// ShapePeer is what waits and has waited for one node.
type ShapePeer struct {
	Node       string `json:"node"`
	Waiting    int    `json:"waiting"` // packets
	Queued     int    `json:"queued"`  // datagrams
	Sent       uint64 `json:"sent_bytes"`
	Marked     uint64 `json:"marked"`
	Dropped    uint64 `json:"dropped"`
	WorstWait  int64  `json:"worst_wait_us"`  // of the last 10 to 20 s, before sealing
	WorstQueue int64  `json:"worst_queue_us"` // after
}

// ShapeProgram is what a program on this node says of its traffic.
type ShapeProgram struct {
	PID     int32  `json:"pid"`
	UID     uint32 `json:"uid"`
	Op      string `json:"op"`       // under way; "none"
	Hosts   int    `json:"hosts"`    // of this site that take part
	MATB    int64  `json:"matb_bps"` // that it has set; 0: none
	Entered uint64 `json:"entered"`  // operations that it has told of
}

// ShapeRequest asks POST /v1/shape to set what this node sends to a site, over what
// is shared; 0 takes that back. Or, with a Weight, to set this node's. It holds until
// the daemon ends.
type ShapeRequest struct {
	Site   string `json:"site,omitempty"`
	Rate   int64  `json:"rate_bps,omitempty"`
	Weight *int   `json:"weight,omitempty"`
}

// Shape returns how this node's traffic to other sites is paced.
func (c *Client) Shape(ctx context.Context) (r ShapeReply, err error) {
	return r, c.call(ctx, http.MethodGet, "/v1/shape", nil, &r)
}

// SetShape sets what this node sends to a site.
func (c *Client) SetShape(ctx context.Context, req ShapeRequest) (r ShapeReply, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/shape", req, &r)
}
