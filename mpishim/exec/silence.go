package exec

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// watchSilence closes conn once its peer's kernel has acknowledged nothing for
// about the given time, and returns when ctx ends.
//
// It watches TCP, not SSH: a launcher stopped by Ctrl-Z or a debugger
// acknowledges as before and keeps its job. Keepalives notice a dead peer on an
// idle connection: a dozen, so that a few short outages just when one is sent do not end
// a job. With data in flight the kernel sends none, and
// TCP_USER_TIMEOUT would also end connections to stopped readers, so there
// TCP_INFO tells. Other connections than TCP end with whoever copies them.
func watchSilence(ctx context.Context, conn net.Conn, silence time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || silence <= 0 {
		return
	}
	idle, every := silence/4, max(silence/16, time.Second)
	tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: idle, Interval: every, Count: int((silence - idle) / every)})
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	tick := time.NewTicker(silence / 8)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var info *unix.TCPInfo
		if raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }) != nil {
			return // closed
		}
		quiet := err == nil && time.Duration(info.Last_ack_recv)*time.Millisecond > silence
		if quiet && info.Unacked > 0 {
			tcp.Close()
			return
		}
	}
}
