package mpishim

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOutputsRefuse: who does not know the secret says nothing here.
func TestOutputsRefuse(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out, io.Discard, false)
	s.secret = newSecret()
	o, err := listenOutputs(netip.MustParseAddr("127.0.0.1"), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, hello := range []string{
		rankHello + " " + newSecret() + " 0\n", rankHello + " " + s.secret + " -1\n", rankHello + " " + s.secret + "\n", "\n",
		strings.Repeat("x", 2*maxRankHello), rankHello + "  0\n",
	} {
		conn, err := net.Dial("tcp", o.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(append([]byte(hello), appendFrame(nil, frame{frameOut, 0, []byte("hello\n")})...))
		if n, _ := io.Copy(io.Discard, conn); n != 0 {
			t.Errorf("%q is answered", hello)
		}
		conn.Close()
	}
	conn, err := net.Dial("tcp", o.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "%s %s 3\n%s", rankHello, s.secret, appendFrame(nil, frame{frameOut, 0, []byte("half")}))
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
	conn.Close()
	o.end()
	if err := s.close(nil, false); err != nil || out.String() != "half" {
		t.Errorf("%q is shown, %v", out.String(), err)
	}
	if ranks, _ := s.heard(); !ranks {
		t.Error("no rank was heard")
	}
}

// busyListener has no room for a connection at first.
type busyListener struct {
	net.Listener
	errors int
}

func (l *busyListener) Accept() (net.Conn, error) {
	if l.errors > 0 {
		l.errors--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestOutputsBusy: ranks that come while there are too many open files are heard later.
func TestOutputsBusy(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out, io.Discard, false)
	s.secret = newSecret()
	ln, err := listenRanks(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	o := &outputs{ln: &busyListener{ln, 2}, scr: s, secret: s.secret, conns: map[net.Conn]struct{}{}}
	o.taking.Go(o.accept)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "%s %s 3\n%s", rankHello, s.secret, appendFrame(nil, frame{frameOut, 0, []byte("late")}))
	conn.(*net.TCPConn).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the rank's connection: %v", err)
	}
	conn.Close()
	o.end()
	if err := s.close(nil, false); err != nil || out.String() != "late" {
		t.Errorf("%q is shown, %v", out.String(), err)
	}
}

func FuzzRankHello(f *testing.F) {
	f.Add(rankHello + " x 3")
	f.Fuzz(func(t *testing.T, line string) {
		if rank, ok := rankHelloOf(line, "secret"); ok && (rank < 0 || !strings.HasPrefix(line, rankHello+" secret ")) {
			t.Errorf("%q is rank %d", line, rank)
		}
	})
}
