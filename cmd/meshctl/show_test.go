package main

import (
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/mesh/peer"
)

func TestPathCells(t *testing.T) {
	for _, tc := range []struct {
		path           *api.Path
		kind, rtt, mtu string
	}{
		{nil, "-", "-", "-"},
		{&api.Path{}, "none", "-", "-"},
		{&api.Path{Kind: peer.KindUDP, Addr: "192.0.2.1:51820", RTT: 1500, MTU: 1400, Works: true}, "udp 192.0.2.1:51820", "1.5ms", "1400"},
		{&api.Path{Kind: peer.KindRelayUDP, Via: []string{"hub"}, Addr: "192.0.2.9:51820", RTT: 1500, Works: true}, "relay-udp by hub 192.0.2.9:51820", "1.5ms", "-"},
		{&api.Path{Kind: peer.KindRelayUDP, Via: []string{"hub"}, RTT: 1500, MTU: 1400}, "no answer (relay-udp by hub)", "-", "-"},
	} {
		if kind, rtt, mtu := pathCells(tc.path); kind != tc.kind || rtt != tc.rtt || mtu != tc.mtu {
			t.Errorf("pathCells(%+v) = %q, %q, %q; want %q, %q, %q", tc.path, kind, rtt, mtu, tc.kind, tc.rtt, tc.mtu)
		}
	}
}

func TestHubState(t *testing.T) {
	for _, tc := range []struct {
		hub  api.HubStatus
		want string
	}{
		{api.HubStatus{Up: true, RTT: 1500}, "up, 1.5ms"},
		{api.HubStatus{Up: true, RTT: 1500, Error: "clocks differ by 1h"}, "up, 1.5ms, but clocks differ by 1h"},
		{api.HubStatus{Error: "cannot reach it"}, "down: cannot reach it"},
	} {
		if got := hubState(tc.hub); got != tc.want {
			t.Errorf("hubState(%+v) = %q, want %q", tc.hub, got, tc.want)
		}
	}
}

func TestEventLine(t *testing.T) {
	at := time.Date(2024, 2, 29, 23, 59, 58, 0, time.Local)
	e := api.Event{Time: at.UTC(), Kind: "node", Node: "b1", Text: "up"}
	if got, want := eventLine(e), "2024-02-29 23:59:58 node         b1           up"; got != want {
		t.Errorf("an event is told as %q, want %q", got, want)
	}
}
