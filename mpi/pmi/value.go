package pmi

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A value on the wire is a word: what a program gives is escaped as in URLs, and
// what is longer than a server takes is cut:
//
//	KEY    = %+N:FIRST    N further pieces
//	KEY%1  = SECOND …     none of which a program's own key or value looks like
//
// Values of others, such as Hydra's PMI_process_mapping, hold no % and pass as
// they are.

// spread begins a value that goes on under further keys.
const spread = "%+"

// bare reports whether c stands for itself in a value.
func bare(c byte) bool {
	return c > ' ' && c < 0x7f && c != '%' && c != ';'
}

// escape makes one word of any text.
func escape(s string) string {
	i := 0
	for i < len(s) && bare(s[i]) {
		i++
	}
	if i == len(s) && s != "" {
		return s
	}
	if s == "" {
		return "%" // an empty word would vanish
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; bare(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape is the inverse of escape; what escape never writes stays as it is.
func unescape(s string) string {
	if s == "%" {
		return ""
	}
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// checkKey refuses what does not pass through every server as a key.
func checkKey(key string, most int) error {
	if len(key) == 0 || len(key) > most-4 { // room for "%999"
		return fmt.Errorf("pmi: key %.40q: 1 to %d bytes are allowed", key, most-4)
	}
	for i := range len(key) {
		if !bare(key[i]) || key[i] == '=' {
			return fmt.Errorf("pmi: key %.40q: printable ASCII without space, =, ; and %% is allowed", key)
		}
	}
	return nil
}

// pieces cuts a value for a server that takes most bytes: the first belongs to
// the key itself, number i to key%i.
func pieces(value string, most int) ([]string, error) {
	if len(value) > maxValue {
		return nil, fmt.Errorf("pmi: a value has at most %d bytes, not %d", maxValue, len(value))
	}
	text := escape(value)
	if len(text) < most {
		return []string{text}, nil
	}
	room := most - 1 - len(spread) - len("999:")
	if room < 16 {
		return nil, fmt.Errorf("pmi: the launcher takes values of %d bytes: %w", most, ErrUnsupported)
	}
	var list []string
	for len(text) > 0 {
		n := min(room, len(text))
		list = append(list, text[:n])
		text = text[n:]
	}
	if len(list) > 1000 {
		return nil, fmt.Errorf("pmi: a value of %d bytes has too many pieces of %d: %w", len(value), room, ErrUnsupported)
	}
	list[0] = spread + itoa(len(list)-1) + ":" + list[0]
	return list, nil
}

// parseHead reads the value of a key: the text, and how many pieces follow it.
func parseHead(value string) (text string, more int, err error) {
	rest, ok := strings.CutPrefix(value, spread)
	if !ok {
		return value, 0, nil
	}
	number, text, ok := strings.Cut(rest, ":")
	more, err = strconv.Atoi(number)
	if !ok || err != nil || more < 1 || more > 999 {
		return "", 0, fmt.Errorf("pmi: value %.40q is no piece of one: %w", value, errLine)
	}
	return text, more, nil
}

// cutOff is err for a message that has begun.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
