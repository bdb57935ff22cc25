package mpishim

import (
	"errors"
	"fmt"
	"strings"
)

// AgentCall is what a launcher asks of its remote-shell agent.
type AgentCall struct {
	State   string // --state; "" for the default
	Login   string // -l, or USER@ before the host; "" for the caller's own
	Host    string
	Command string // the words joined by spaces, as rsh and ssh do: launchers quote for a shell
	NoStdin bool   // -n
}

// AgentUsage is meshrsh's one line of help.
const AgentUsage = "usage: meshrsh [--state DIR] [-n] [-q] [-x] [-T] [-l USER] [USER@]HOST COMMAND…"

// Bounds of a call; the kernel's own bound on arguments is of that order.
const (
	maxAgentCommand = 256 << 10
	maxAgentName    = 255
)

// ParseAgent reads meshrsh's arguments. Options end at the host: whatever
// follows belongs to the command. Options of rsh and ssh that have no meaning
// here (-q, -x, -X, -T, -t, -a, -A, -k, -K, -4, -6, -v) are accepted and ignored.
func ParseAgent(args []string) (AgentCall, error) {
	var c AgentCall
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		arg := args[0]
		args = args[1:]
		name, value, inline := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return c.finish(args)
		case name == "--state" || name == "-l":
			if !inline {
				if len(args) == 0 {
					return c, fmt.Errorf("%s needs a value; %s", name, AgentUsage)
				}
				value, args = args[0], args[1:]
			}
			if name == "-l" {
				c.Login = value
			} else {
				c.State = value
			}
		case strings.HasPrefix(arg, "-l"):
			c.Login = arg[2:]
		case len(arg) > 1 && strings.Trim(arg[1:], "nqxXTtaAkK46v") == "":
			c.NoStdin = c.NoStdin || strings.Contains(arg, "n")
		default:
			return c, fmt.Errorf("no option %q; %s", arg, AgentUsage)
		}
	}
	return c.finish(args)
}

func (c AgentCall) finish(args []string) (AgentCall, error) {
	if len(args) < 2 {
		return c, errors.New("a host and a command are needed; " + AgentUsage)
	}
	c.Host = args[0]
	if i := strings.LastIndexByte(c.Host, '@'); i >= 0 {
		c.Login, c.Host = c.Host[:i], c.Host[i+1:]
	}
	c.Command = strings.Join(args[1:], " ")
	switch {
	case c.Host == "" || len(c.Host) > maxAgentName || strings.ContainsAny(c.Host, " \t\n/"):
		return c, fmt.Errorf("%.80q is no host; %s", c.Host, AgentUsage)
	case len(c.Login) > maxAgentName:
		return c, errors.New("the login name is too long")
	case len(c.Command) > maxAgentCommand:
		return c, fmt.Errorf("the command is longer than %d bytes", maxAgentCommand)
	}
	return c, nil
}
