package mpishim

import "strings"

// preload lets MPICH on UCX end its jobs; see preload/ucx.c. It lies beside our
// binaries on each node.
const preload = "libmeshmpi-ucx.so"

// hydraProxy is what Hydra starts on each node.
const hydraProxy = "hydra_pmi_proxy"

// AgentCommand is what the agent has the other node's shell run for a launcher's
// command: the command itself, and before Hydra's proxy, whose children the
// ranks are, our preload library if that node has it. Whatever the user's shell is,
// /bin/sh reads that.
func AgentCommand(command string) string {
	if !strings.Contains(command, hydraProxy) {
		return command
	}
	return "exec /bin/sh -c " + Quote(`if [ -r "$MESH_BIN/`+preload+`" ]; then LD_PRELOAD="$MESH_BIN/`+preload+
		`${LD_PRELOAD:+:$LD_PRELOAD}"; export LD_PRELOAD; fi; `+command)
}
