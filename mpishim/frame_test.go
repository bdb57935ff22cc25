package mpishim

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestHelloAfterALoginScript(t *testing.T) {
	for _, tt := range []struct {
		name, in, talk string
		err            error
	}{
		{"at once", agentHello + "\nx", "", nil},
		{"talk", "Welcome!\nno newline" + agentHello + "\nx", "Welcome!\nno newline", nil},
		{"none", "Welcome!\n", "Welcome!\n", io.EOF},
		{"talk without end", strings.Repeat("w\n", maxTalk), strings.Repeat("w\n", maxTalk/2), errFrame},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReader(strings.NewReader(tt.in))
			talk, err := readHello(r)
			if string(talk) != tt.talk || !errors.Is(err, tt.err) {
				t.Errorf("got %d bytes %.40q, %v, want %.40q, %v", len(talk), talk, err, tt.talk, tt.err)
			}
			if rest, _ := io.ReadAll(r); err == nil && string(rest) != "x" {
				t.Errorf("%q is left", rest)
			}
		})
	}
}

func TestFramesThatAreRefused(t *testing.T) {
	long := binary.BigEndian.AppendUint32([]byte{frameOut, 0, 0, 0, 1}, maxFrame+1)
	for _, tt := range []struct {
		name string
		in   []byte
		err  error
	}{
		{"end", nil, io.EOF},
		{"cut in the head", []byte{frameOut, 0}, io.ErrUnexpectedEOF},
		{"cut in the body", appendFrame(nil, frame{frameOut, 1, []byte("abc")})[:frameHeader+2], io.ErrUnexpectedEOF},
		{"no such kind", appendFrame(nil, frame{'?', 1, nil}), errFrame},
		{"too long", long, errFrame},
	} {
		if _, err := readFrame(bytes.NewReader(tt.in)); !errors.Is(err, tt.err) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.err)
		}
	}
}

func TestExitsThatAreRefused(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"Code":3,"PID":7,"What":"x"}`: true, `{}`: true, `{"Code":-1}`: false, `{"Code":256}`: false, `{"PID":-7}`: false, `x`: false, ``: false,
	} {
		if _, err := parseExit([]byte(in)); (err == nil) != ok || err != nil && !errors.Is(err, errFrame) {
			t.Errorf("%s: got %v, want it taken: %t", in, err, ok)
		}
	}
}

// FuzzFrames reads anything as an agent's stream: what is taken is bounded, and
// packs into the bytes that it came in.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(agentHello + "\n" + string(appendFrame(nil, frame{frameOut, 1, []byte("a line\n")}))))
	f.Add([]byte(agentHello + "\n" + string(appendFrame(nil, frame{frameExit, 7, []byte(`{"Code":3}`)}))))
	f.Add([]byte("talk\x00" + agentHello + "\ns\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		talk, err := readHello(r)
		if err != nil {
			return
		}
		out := append(bytes.Clone(talk), agentHello+"\n"...)
		for {
			fr, err := readFrame(r)
			if err != nil {
				break
			}
			if fr.kind != frameStart && len(fr.data) > maxFrame {
				t.Fatalf("a frame of %d bytes", len(fr.data))
			}
			if fr.kind == frameExit {
				if rep, err := parseExit(fr.data); err == nil && (rep.Code < 0 || rep.Code > 255 || len(rep.What) > 400) {
					t.Fatalf("taken: %+v", rep)
				}
			}
			out = appendFrame(out, fr)
		}
		if !bytes.HasPrefix(in, out) {
			t.Errorf("%q was read as %q", in, out)
		}
	})
}

func TestProcessMapping(t *testing.T) {
	for want, places := range map[string][]int{
		"(vector)":                         nil,
		"(vector,(0,1,3))":                 {0, 0, 0},
		"(vector,(0,1,1),(1,1,2),(0,1,1))": {0, 1, 1, 0},
		"(vector,(2,1,2),(0,1,1))":         {2, 2, 0},
		"(vector,(0,1,1),(1,1,1),(2,1,1))": {0, 1, 2},
	} {
		if got := processMapping(places); got != want {
			t.Errorf("%v: got %s, want %s", places, got, want)
		}
	}
}
