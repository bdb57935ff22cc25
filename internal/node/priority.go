package node

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/meshmpi/meshmpi/internal/threads"
)

// precedence is the nice value of a daemon. Ranks of MPI spin while they wait, and
// beside them a thread of ordinary priority that wakes for a packet waits for
// milliseconds; each packet meets three. The daemon needs little time in all.
const precedence = -20

// autogroup is this session's, whose processes the scheduler gives a share of the
// processors together, whatever their nice values are among others' (sched(7)).
const autogroup = "/proc/self/autogroup"

// takePrecedence is for a daemon; a program that is a node keeps its own priority.
func (d *daemon) takePrecedence() {
	var err error
	if d.nice, err = hurry(); err != nil {
		d.log.Warn("meshd has no precedence over programs, and packets wait for spinning ranks: allow it CAP_SYS_NICE", "err", err)
	}
}

// hurry gives this process precedence over ordinary ones, where that is allowed. It
// returns the nice value from before, for what is not to have precedence.
func hurry() (before int, err error) {
	before, err = niceness()
	if err != nil {
		return 0, err
	}
	if session, err := unix.Getsid(0); err == nil && session == os.Getpid() { // nobody else's
		_ = os.WriteFile(autogroup, strconv.AppendInt(nil, precedence, 10), 0) // there is none in some kernels
	}
	return before, threads.Each(func(id int) error {
		return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, id, min(before, precedence)))
	})
}

// niceness returns the calling thread's nice value. The system call has it as 20
// less that.
func niceness() (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return 20 - n, os.NewSyscallError("getpriority", err)
}
