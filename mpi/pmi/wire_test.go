package pmi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func read(text string) (message, error) { return readMessage(bufio.NewReader(strings.NewReader(text))) }

func TestReadMessage(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       message
	}{
		{"bare", "cmd=barrier_in\n", newMessage("barrier_in")},
		{"pairs", "cmd=put kvsname=kvs_1 key=a value=b=c,(d)\n", newMessage("put", "kvsname", "kvs_1", "key", "a", "value", "b=c,(d)")},
		{"spaces", "cmd=get  key=a \r\n", newMessage("get", "key", "a")},
		{"empty value", "cmd=get_result value= rc=0\n", newMessage("get_result", "value", "", "rc", "0")},
		{"words", "cmd=get_result msg=key a not_found rc=-1\n", newMessage("get_result", "msg", "key", "rc", "-1")},
		{"empty lines", "\n\ncmd=finalize\n", newMessage("finalize")},
		{"lines", "mcmd=spawn\nexecname=a b\narg1= c=d\nendcmd\n", message{cmd: "spawn", lines: true, pairs: []pair{{"execname", "a b"}, {"arg1", " c=d"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(tt.text)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestReadMessageRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no command":     "key=a cmd=put\n",
		"empty command":  "cmd= key=a\n",
		"prose":          "GET / HTTP/1.1\n",
		"long line":      "cmd=put value=" + strings.Repeat("x", maxLine) + "\n",
		"no pair":        "mcmd=spawn\nfoo\nendcmd\n",
		"many lines":     "mcmd=spawn\n" + strings.Repeat("a=b\n", maxLines+1) + "endcmd\n",
		"too many bytes": "mcmd=spawn\n" + strings.Repeat("a="+strings.Repeat("b", 1000)+"\n", 2000) + "endcmd\n",
	} {
		if m, err := read(text); !errors.Is(err, errLine) {
			t.Errorf("%s: got %.80v, %v", name, m, err)
		}
	}
	for text, want := range map[string]error{"": io.EOF, "cmd=a": io.EOF, "mcmd=spawn\n": io.ErrUnexpectedEOF} {
		if _, err := read(text); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", text, err, want)
		}
	}
}

func TestFailed(t *testing.T) {
	for _, tt := range []struct {
		m    message
		want bool
	}{
		{newMessage("a"), false}, {newMessage("a", "rc", "0"), false}, {newMessage("a", "rc", "-1"), true}, {newMessage("a", "rc", "1", "msg", "x_y"), true},
	} {
		if _, got := tt.m.failed(); got != tt.want {
			t.Errorf("%v: got %t", tt.m, got)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("cmd=put kvsname=k key=a value=v\ncmd=barrier_in\n"))
	f.Add([]byte("mcmd=spawn\nnprocs=2\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=1\narg1=a b\npreput_num=1\npreput_key_0=k\npreput_val_0=%+1:x\nendcmd\n"))
	f.Add([]byte("cmd=mesh_notice event=died rank=3 code=-9\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		var s spawning
		for {
			m, err := readMessage(r)
			if err != nil {
				return
			}
			if m.lines {
				s.add(m)
				joinKeys(s.keys)
				continue
			}
			parseNotice(m)
			m.failed()
			again, err := readMessage(bufio.NewReader(bytes.NewReader(m.append(nil))))
			if err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("%v becomes %v, %v", m, again, err)
			}
		}
	})
}

func TestPieces(t *testing.T) {
	for _, value := range []string{"", "a", "%", "%+3:x", "a b\nc=d;é\x00", strings.Repeat("x", 1023), strings.Repeat("x", 1024), strings.Repeat(" ", 20000), strings.Repeat("y", maxValue)} {
		for _, most := range []int{256, 1024} {
			list, err := pieces(value, most)
			if err != nil {
				t.Errorf("%.20q: %v", value, err)
				continue
			}
			for _, p := range list {
				if len(p) >= most || strings.ContainsAny(p, " \n;\x00") || p == "" {
					t.Errorf("%.20q in %d: piece %.40q of %d bytes", value, most, p, len(p))
				}
			}
			text, more, err := parseHead(list[0])
			if err != nil || more != len(list)-1 {
				t.Errorf("%.20q: %d pieces more, %v", value, more, err)
			}
			if got := unescape(text + strings.Join(list[1:], "")); got != value {
				t.Errorf("%.20q becomes %.20q", value, got)
			}
		}
	}
	if _, err := pieces(strings.Repeat("z", maxValue+1), 1024); err == nil {
		t.Error("a value that is too long passes")
	}
}

func FuzzValue(f *testing.F) {
	f.Add("", "%+2:abc")
	f.Add("a b%", "%+:")
	f.Add("%41", "(vector,(0,2,1))")
	f.Fuzz(func(t *testing.T, s, raw string) {
		if got := unescape(escape(s)); got != s {
			t.Errorf("%q becomes %q by %q", s, got, escape(s))
		}
		unescape(raw)
		parseHead(raw)
	})
}

func TestCheckKey(t *testing.T) {
	for key, want := range map[string]bool{"a": true, "card-17/x.y:z": true, "": false, "a b": false, "a=b": false, "a%1": false, "ä": false, strings.Repeat("k", 60): true, strings.Repeat("k", 61): false} {
		if err := checkKey(key, maxKey); (err == nil) != want {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestHostsOfIdentities(t *testing.T) {
	for text, want := range map[string][]string{
		"1629618176.0;tcp://192.0.2.2:59687;tcp6://[fd00::2]:35841": {"192.0.2.2", "fd00::2"},
		"1.0;tcp://10.0.0.1,192.0.2.1:37467":                        {"10.0.0.1", "192.0.2.1"},
		"":                                                          nil,
		"x;y":                                                       nil,
	} {
		if got := uriHosts(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string][]string{"prterun-node-7-4711@1": {"node-7"}, "1629618177": nil, "prterun": nil, "a-b": nil} {
		if got := namespaceHost(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"a": "a", "a,b": "a", "n[3-5,8],b": "n3", "n[07]": "n07", "x,n[1-2]": "x", "": "", "n[": "", "n[]": ""} {
		if got := firstNode(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzIdentities(f *testing.F) {
	f.Add("1.0;tcp://10.0.0.1,192.0.2.1:37467;tcp6://[fd00::1]:1")
	f.Add("prterun-node-7-4711@1")
	f.Add("n[3-5,8],b")
	f.Fuzz(func(t *testing.T, s string) {
		if len(uriHosts(s)) > maxOwners {
			t.Error("too many")
		}
		namespaceHost(s)
		firstNode(s)
	})
}
