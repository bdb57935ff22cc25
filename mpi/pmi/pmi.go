// Package pmi is how the ranks of a job find one another: the wire-up protocol
// PMI-1, as Hydra's mpiexec and Slurm's srun speak it, as a client for ranks and
// as a server for launchers.
//
// It exists because a Go rank must start under anybody's launcher. A launcher
// that speaks PMI-1 is used as it is. Under one that gives a rank its number
// only (Open MPI's mpirun, srun without its pmi2 plugin) the ranks meet at a
// server of this package inside rank 0, which the others find by a socket if the
// job is on one host, and else by a record that a meshd keeps for them. So there
// is one protocol, whoever serves it.
//
// What travels are small texts, rank numbers and names, never messages: package
// mpi puts a business card per rank and fetches the others'. The package knows
// no communicator, starts no process (the launcher's Spawn does) and speaks
// neither PMI-2 nor PMIx.
//
// Protocol flow, a line each way (src/pmi/maint/pmi-1.1.txt of MPICH):
//
//	cmd=initack pmiid=R            → cmd=initack, then cmd=set size=, rank=, debug=   (TCP only)
//	cmd=init pmi_version=1 …       → cmd=response_to_init … rc=0 [mesh=1 joins=1 ft=0]
//	cmd=get_maxes                  → cmd=maxes kvsname_max= keylen_max= vallen_max=
//	cmd=get_my_kvsname             → cmd=my_kvsname kvsname=K
//	cmd=get_appnum                 → cmd=appnum appnum=A
//	cmd=get_universe_size          → cmd=universe_size size=U
//	cmd=put kvsname=K key= value=  → cmd=put_result rc=
//	cmd=get kvsname=K key=         → cmd=get_result rc= value=
//	cmd=barrier_in                 → cmd=barrier_out [rc=], when all are in
//	cmd=publish_name service= port=, unpublish_name, lookup_name → …_result rc= [port=]
//	mcmd=spawn … endcmd            → cmd=spawn_result rc= errcodes=
//	cmd=abort exitcode=            → nothing
//	cmd=finalize                   → cmd=finalize_ack
//
// A server of this package says mesh=1 and then also takes, besides putting a
// key again and gets without waiting for answers:
//
//	cmd=mesh_subscribe             → cmd=mesh_subscribed rc=0
//	                               → cmd=mesh_notice event=died rank=3 code=9, whenever it happens
//
// and, where it says joins=1:
//
//	mcmd=spawn … mesh_id=N [mesh_joins=1] endcmd
//	                               → cmd=spawn_result … mesh_id=N, beside other answers
//	cmd=mesh_withdraw mesh_id=N    → nothing: who asked for that job does not wait for it any more
//	cmd=mesh_joined rc= [msg=]     → cmd=mesh_joined_ack rc=0, in a job that was spawned
package pmi

import (
	"errors"
	"fmt"
)

// MaxSize bounds the ranks of a job.
const MaxSize = 1 << 20

// Bounds that servers of this package announce, and those of MPICH and Slurm.
const (
	maxName  = 256  // bytes of a key-value space's name, and of a service's
	maxKey   = 64   // bytes of a key
	maxChunk = 1024 // bytes of a value on the wire
	maxValue = 64 << 10
)

// Errors that callers branch on.
var (
	ErrNoKey       = errors.New("no such key")
	ErrNoName      = errors.New("no such name")
	ErrNameTaken   = errors.New("the name is taken")
	ErrUnsupported = errors.New("the launcher does not offer it")
	ErrClosed      = errors.New("closed")
	ErrLost        = errors.New("the connection to the launcher is lost")
	ErrBroken      = errors.New("not all ranks can come")
)

// NoticeKind says what happened to a job.
type NoticeKind uint8

// The notices.
const (
	Died    NoticeKind = iota + 1 // a rank left without finalizing; Code is 128+n for signal n, its exit code, or 0: not known
	Back                          // a dead rank's replacement has come
	Aborted                       // a rank ended the job with Code
	Lost                          // the launcher is gone; Rank is -1
)

// String names the kind as it travels.
func (k NoticeKind) String() string {
	switch k {
	case Died:
		return "died"
	case Back:
		return "back"
	case Aborted:
		return "aborted"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Notice is something that happened to a job.
type Notice struct {
	Kind NoticeKind
	Rank int
	Code int
}

// String is for logs.
func (n Notice) String() string { return fmt.Sprintf("rank %d %s (%d)", n.Rank, n.Kind, n.Code) }

// message packs n.
func (n Notice) message() message {
	return newMessage("mesh_notice", "event", n.Kind.String(), "rank", itoa(n.Rank), "code", itoa(n.Code))
}

// parseNotice is the inverse; ok is false for what a newer server may say.
func parseNotice(m message) (n Notice, ok bool) {
	for _, k := range []NoticeKind{Died, Back, Aborted} {
		if m.get("event") == k.String() {
			n.Kind, ok = k, true
		}
	}
	var err error
	if n.Rank, err = m.number("rank", 0, MaxSize-1); err != nil {
		return Notice{}, false
	}
	if n.Code, err = m.number("code", -1<<31, 1<<31-1); err != nil {
		return Notice{}, false
	}
	return n, ok
}
