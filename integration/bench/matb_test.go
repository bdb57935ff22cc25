package bench

import "testing"

// TestParseCounters: names and values stand on lines of their own; kernels print some
// protocols twice.
func TestParseCounters(t *testing.T) {
	got := parseCounters("Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 35\n" +
		"TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 7\nIcmpMsg: InType3\nIcmpMsg: 2\n")
	for name, want := range map[string]float64{"Tcp.RetransSegs": 35, "Tcp.MaxConn": -1, "TcpExt.TCPTimeouts": 7, "Ip.DefaultTTL": 64, "IcmpMsg.InType3": 2} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if len(parseCounters("")) != 0 || len(parseCounters("Tcp: a b\nUdp: 1 2\n")) != 0 {
		t.Error("lines that belong to nothing are counted")
	}
}
