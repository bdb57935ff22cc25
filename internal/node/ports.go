package node

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/udp"
)

// DefaultState is the state directory when nobody names another.
const DefaultState = api.DefaultState

// StateDir returns the state directory: the flag's, $MESH_STATE's, the default.
func StateDir(flag string) string { return api.StateDir(flag) }

// ParsePorts turns --listen and --port-range into ports. Both empty mean the
// default, which is the zero value.
func ParsePorts(listen, portRange string) (udp.Ports, error) {
	switch {
	case listen != "" && portRange != "":
		return udp.Ports{}, fmt.Errorf("--listen and --port-range exclude each other")
	case listen != "":
		p, err := parsePort(strings.TrimPrefix(listen, ":"))
		if err != nil {
			return udp.Ports{}, fmt.Errorf("--listen %q is not a port such as :51820", listen)
		}
		return udp.Ports{First: p, Last: p}, nil
	case portRange != "":
		a, b, ok := strings.Cut(portRange, "-")
		first, err1 := parsePort(a)
		last, err2 := parsePort(b)
		if !ok || err1 != nil || err2 != nil || last < first {
			return udp.Ports{}, fmt.Errorf("--port-range %q is not a range such as 51820-51830", portRange)
		}
		return udp.Ports{First: first, Last: last}, nil
	}
	return udp.Ports{}, nil
}

func parsePort(s string) (uint16, error) {
	p, err := strconv.ParseUint(s, 10, 16)
	if err != nil || p == 0 {
		return 0, fmt.Errorf("%q is not a port", s)
	}
	return uint16(p), nil
}
