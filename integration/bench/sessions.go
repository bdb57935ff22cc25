package bench

import (
	"bytes"
	"os"
)

// autogroup says whether the scheduler gives sessions, not processes, their shares of
// the processors; see sched(7).
const autogroup = "/proc/sys/kernel/sched_autogroup_enabled"

// withoutSessions has the scheduler weigh processes until undo is called, and returns
// what there is to say of it. The ranks of a job are on a host each, and so in a session
// each; on hosts of their own that would make no difference. But those of the lab share
// processors, and a rank that waits there and yields, yields only to its own session's
// processes: the others' ranks wait for up to half a millisecond, each time.
func (env *Env) withoutSessions() (undo func(), said string) {
	was, err := os.ReadFile(autogroup)
	if err != nil || bytes.Equal(bytes.TrimSpace(was), []byte("0")) {
		return func() {}, "The scheduler knows nothing of sessions here."
	}
	if err := os.WriteFile(autogroup, []byte("0"), 0); err != nil {
		env.say("the scheduler weighs sessions, so ranks that yield do so to nobody: %v", err)
		return func() {}, "The scheduler weighs sessions, so that ranks yield to none of other hosts'."
	}
	return func() { _ = os.WriteFile(autogroup, was, 0) }, "The scheduler weighs processes, not sessions (`kernel.sched_autogroup_enabled=0`), so that ranks that wait yield to those of other hosts on the same processors."
}
