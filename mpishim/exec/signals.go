package exec

import (
	"os"
	"os/signal"
	"slices"
)

// Heeded are those of some signals that this process was not started to ignore, as nohup
// has it ignore SIGHUP, and shells without job control SIGINT of what runs in the
// background. Asking for the others by signal.Notify would have them heeded after all.
func Heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}
