package engine

// Proc is a process in this engine's table. Numbers are given by AddProcs in
// order, after those of the job, and never reused.
type Proc int32

// AnyProc in a receive matches whoever sends (MPI 4.1 §3.2.4).
const AnyProc Proc = -1

// AnyTag in a receive matches every tag. Tags of messages are at least 0.
const AnyTag int32 = -1

// Context is a matching domain: messages of one never match receives of another
// (MPI 4.1 §7.1.2). Contexts are small dense integers below MaxContexts.
type Context uint32

// MaxContexts bounds what a peer can make the table of contexts grow to.
const MaxContexts = 1 << 20

// Mode is how a send relates to its receive (MPI 4.1 §3.4). Ready is treated as
// Standard.
type Mode uint8

// The modes of a send.
const (
	Standard Mode = iota
	Synchronous
	Ready
)

// Swapper converts a received message in place from the other byte order.
type Swapper interface{ Swap(b []byte) }

// ID names a request. The zero ID is no request: complete, with an empty status.
type ID struct{ slot, gen uint32 }

// Message names one that a matched probe has taken out of matching (MPI 4.1
// §3.8.2). It must be received.
type Message struct{ slot, gen uint32 }

// SendArgs say what to send. Data is borrowed until the request is complete;
// the structure itself only during the call.
type SendArgs struct {
	To      Proc
	Context Context
	Tag     int32
	Mode    Mode
	Data    []byte
	Done    func(*Op, Status, error) // called when the request ends, with the engine held; may be nil
}

// RecvArgs say what to receive. Buf is borrowed until the request is complete;
// the structure itself only during the call.
type RecvArgs struct {
	From    Proc // or AnyProc
	Context Context
	Tag     int32 // or AnyTag
	Buf     []byte
	Swap    Swapper                  // for messages of the other byte order; nil: they are bytes
	Done    func(*Op, Status, error) // called when the request ends, with the engine held; may be nil
}

// Status says how a request ended. Bytes are those put into the buffer; of a
// probe, those of the message.
type Status struct {
	Source    Proc
	Tag       int32
	Bytes     int64
	Cancelled bool
}

// empty is the status of no request (MPI 4.1 §3.7.3).
var empty = Status{Source: AnyProc, Tag: AnyTag}
