// Package profile makes of the records of a job's ranks (package record) what a person
// wants to know: who sent how much to whom and when, which communication pattern that
// is, at what rate nodes should send, and where ranks had better be; as text, as JSON
// and as two drawings.
//
// It exists because pacing and placement are easy once the pattern is known, and nobody
// knows a program's pattern by heart. How it fits together:
//
//	meshrun --profile DIR
//	  │  MESH_PROFILE=/dev/shm/…           one folder for the job on each node
//	  ▼
//	ranks: preload library | package mpi ─► rank-N, a mapped table (package record)
//	                                          │ when the job has ended, however it did
//	meshrun on each node: _profile ◄──────────┘ sends them and removes the folder
//	  ▼
//	Builder.Add per rank ─► matrix by rank, timeline by node and site
//	Builder.Profile      ─► traffic.Name, pacing, traffic.Order and Assign
//	  ▼
//	DIR: report.txt  profile.json  matrix.svg  timeline.svg  (rankfile)
//
// What is counted is what programs give MPI for other ranks, not what then goes over
// wires: headers, retransmissions and the trees of an MPI's collective operations are
// not in it, nor are one-sided operations. Times count from each rank's own MPI_Init,
// so that no clocks have to agree.
//
// It does no I/O but to write the files, and knows no launchers.
package profile

import (
	"time"

	"github.com/meshmpi/meshmpi/mpishim/profile/traffic"
)

// Version is that of profile.json.
const Version = 1

// Job is what is known of a job before its records.
type Job struct {
	Program string
	MPI     string
	Places  []Place // in the order of ranks
	Sites   []Link  // what is declared of sites' own links
	Between []Link  // and of the ways between two
}

// Place is a node and the ranks that it gets.
type Place struct {
	Node, Site string
	Ranks      int
}

// Link is what is declared of a site's link, or, where B is named, of the way between
// two. Bits per second; 0: nothing.
type Link struct {
	A, B     string
	Up, Down int64 // the same between two
}

// Profile is what a job did. It marshals to profile.json: sums are bytes unless the
// name says otherwise, and pairs without traffic are left out.
type Profile struct {
	Version  int       `json:"version"`
	Program  string    `json:"program"`
	MPI      string    `json:"mpi"`
	Began    time.Time `json:"began"` // when the first rank's MPI_Init returned, by its node's clock
	Seconds  float64   `json:"seconds"`
	Bytes    uint64    `json:"bytes"`         // to other ranks
	Sites    uint64    `json:"between_sites"` // of these, to other sites
	Messages uint64    `json:"messages"`      // point to point
	Outside  uint64    `json:"outside"`       // to processes of other jobs, not in Bytes
	Missed   uint64    `json:"missed"`        // operations that could not be told apart

	Ranks    []Rank     `json:"ranks"`
	Nodes    []Node     `json:"nodes"`
	Pairs    []Traffic  `json:"pairs"`      // rank to rank
	ByNode   []Traffic  `json:"node_pairs"` // node to node, by index in nodes
	Calls    []Call     `json:"calls"`
	Timeline Timeline   `json:"timeline"`
	Pattern  Pattern    `json:"pattern"`
	Pacing   []Pace     `json:"pacing"`
	Moves    *Placement `json:"placement,omitempty"` // nil: nothing is gained

	job   Job
	where places
	ranks *traffic.Matrix
	nodes *traffic.Matrix
}

// Pattern is the name of how ranks communicate, and why it was given.
type Pattern = traffic.Pattern

// Rank is one of the job's.
type Rank struct {
	Node     int  `json:"node"` // index in nodes
	Recorded bool `json:"recorded"`
	Ended    bool `json:"ended"` // came to MPI_Finalize
}

// Node is a node of the job.
type Node struct {
	Name  string `json:"name"`
	Site  string `json:"site"`
	Ranks int    `json:"ranks"`
	Away  uint64 `json:"to_other_sites"`
}

// Traffic is what one sends another; the diagonal is left out.
type Traffic struct {
	From       int    `json:"from"`
	To         int    `json:"to"`
	Messages   uint64 `json:"in_messages,omitempty"`
	Collective uint64 `json:"in_collectives,omitempty"`
	Count      uint64 `json:"messages,omitempty"`
}

// Bytes is the sum.
func (t Traffic) Bytes() uint64 { return t.Messages + t.Collective }

// Call is how often all ranks called an operation, and what it moved.
type Call struct {
	Name  string `json:"name"`
	Calls uint64 `json:"calls"`
	Bytes uint64 `json:"bytes"`
}

// Timeline is bytes by time since MPI_Init, in buckets of a width.
type Timeline struct {
	Width float64  `json:"width_s"`
	Ways  []Series `json:"ways"`  // by what they go between
	Nodes []Series `json:"nodes"` // from a node to other sites; to other nodes where there is one site
}

// Series is one line of a timeline.
type Series struct {
	Name  string   `json:"name"` // "alpha → beta", "within nodes", or a node's name
	Bytes []uint64 `json:"bytes"`
}
