package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of what the other end may send as one message.
const (
	maxLine  = 16 << 10 // bytes of a line
	maxLines = 8 << 10  // lines of a message in many lines
	maxBlock = 1 << 20  // bytes of one
)

// errLine says that the other end does not speak the protocol.
var errLine = errors.New("not a line of PMI-1")

// pair is key=value.
type pair struct{ key, value string }

// message is one command or answer:
//
//	cmd=NAME key=value key=value\n
//
// or, for spawn alone, in lines whose values may hold spaces:
//
//	mcmd=NAME\nkey=value\n…endcmd\n
type message struct {
	cmd   string
	lines bool
	pairs []pair
}

// newMessage builds a message from keys and values in turn.
func newMessage(cmd string, keyvals ...string) message {
	m := message{cmd: cmd}
	for i := 0; i+1 < len(keyvals); i += 2 {
		m.pairs = append(m.pairs, pair{keyvals[i], keyvals[i+1]})
	}
	return m
}

// with adds a pair.
func (m message) with(key, value string) message {
	m.pairs = append(m.pairs, pair{key, value})
	return m
}

// get returns the first value of a key, or "".
func (m message) get(key string) string {
	v, _ := m.lookup(key)
	return v
}

func (m message) lookup(key string) (string, bool) {
	for _, p := range m.pairs {
		if p.key == key {
			return p.value, true
		}
	}
	return "", false
}

// number returns the value of a key as a number within bounds.
func (m message) number(key string, least, most int) (int, error) {
	text, ok := m.lookup(key)
	if !ok {
		return 0, fmt.Errorf("%s without %s: %w", m.cmd, key, errLine)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s with %s=%.40q: %w", m.cmd, key, text, errLine)
	}
	return n, nil
}

// failed reports whether an answer says that the command did not work, and why.
// Slurm leaves rc out of answers that cannot fail; MPICH once said info=ok.
func (m message) failed() (string, bool) {
	rc, ok := m.lookup("rc")
	if !ok || rc == "0" {
		return "", false
	}
	why := strings.ReplaceAll(m.get("msg"), "_", " ")
	if why == "" {
		why = "rc=" + rc
	}
	return why, true
}

// append packs m. Values in one line must hold no space: see escape.
func (m message) append(b []byte) []byte {
	name, sep := "cmd=", byte(' ')
	if m.lines {
		name, sep = "mcmd=", '\n'
	}
	b = append(append(b, name...), m.cmd...)
	for _, p := range m.pairs {
		b = append(append(append(append(b, sep), p.key...), '='), p.value...)
	}
	if m.lines {
		b = append(b, "\nendcmd"...)
	}
	return append(b, '\n')
}

// readMessage reads the next message. Its error is io.EOF only between messages.
func readMessage(r *bufio.Reader) (message, error) {
	line, err := readLine(r)
	if err != nil {
		return message{}, err
	}
	if name, ok := strings.CutPrefix(line, "mcmd="); ok {
		return readLines(r, strings.TrimSpace(name))
	}
	return parseLine(line)
}

// readLine returns a line without its end; empty lines are skipped, as Hydra does.
func readLine(r *bufio.Reader) (string, error) {
	for {
		var line []byte
		for {
			part, err := r.ReadSlice('\n')
			if len(line)+len(part) > maxLine {
				return "", fmt.Errorf("longer than %d bytes: %w", maxLine, errLine)
			}
			line = append(line, part...)
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return "", err
			}
		}
		if text := strings.Trim(string(line), "\r\n\x00"); text != "" {
			return text, nil
		}
	}
}

// parseLine reads words of the form key=value. A word without = belongs to no
// command that is known and is left out; the first pair names the command.
func parseLine(line string) (message, error) {
	var m message
	for word := range strings.FieldsSeq(line) {
		key, value, ok := strings.Cut(word, "=")
		switch {
		case !ok || key == "":
		case m.cmd == "" && key == "cmd":
			m.cmd = value
		case m.cmd == "":
			return message{}, fmt.Errorf("%.40q: %w", line, errLine)
		default:
			m.pairs = append(m.pairs, pair{key, value})
		}
	}
	if m.cmd == "" {
		return message{}, fmt.Errorf("%.40q: %w", line, errLine)
	}
	return m, nil
}

// readLines reads the rest of a message that began with mcmd=.
func readLines(r *bufio.Reader, name string) (message, error) {
	m := message{cmd: name, lines: true}
	total := 0
	for range maxLines {
		line, err := readLine(r)
		if err != nil {
			return message{}, cutOff(err)
		}
		if line == "endcmd" {
			return m, nil
		}
		key, value, ok := strings.Cut(line, "=")
		if total += len(line); !ok || total > maxBlock {
			return message{}, fmt.Errorf("%s: %.40q: %w", name, line, errLine)
		}
		m.pairs = append(m.pairs, pair{key, value})
	}
	return message{}, fmt.Errorf("%s has more than %d lines: %w", name, maxLines, errLine)
}

func itoa(n int) string { return strconv.Itoa(n) }
