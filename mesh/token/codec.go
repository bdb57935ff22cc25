package token

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
)

// The text is prefix, then base64url without padding (RFC 4648 §5) of
//
//	Root 32, ID 8, Secret 16, Expires 8 (Unix seconds, big-endian, 0 never),
//	Network, Site, count of hubs 1, each hub, checksum 4
//
// where a string is its length in one or two bytes (uvarint) and its bytes, and
// the checksum is the beginning of the SHA-256 of all that stands before it,
// prefix included.
const (
	prefix      = "mesh1"
	fixedLen    = 32 + 8 + 16 + 8
	checksumLen = 4
)

// encoding refuses what it would not itself have written.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// String returns the token's text, secret and all: one word of letters, digits,
// '-' and '_'. A token that is neither New's nor Parse's may not be readable.
func (t Token) String() string {
	b := make([]byte, 0, 192)
	b = append(b, t.Root[:]...)
	b = append(b, t.ID[:]...)
	b = append(b, t.Secret[:]...)
	var expires uint64
	if !t.Expires.IsZero() {
		expires = uint64(t.Expires.Unix())
	}
	b = binary.BigEndian.AppendUint64(b, expires)
	b = appendString(b, t.Network)
	b = appendString(b, t.Site)
	b = append(b, byte(len(t.Hubs)))
	for _, h := range t.Hubs {
		b = appendString(b, h)
	}
	b = append(b, checksum(b)...)
	return prefix + encoding().EncodeToString(b)
}

// Parse reads a token's text. White space around and inside it, as line wraps
// leave behind, is passed over. Errors are one line for the user.
func Parse(s string) (Token, error) {
	if len(s) > MaxLen {
		return Token{}, fmt.Errorf("token: %d bytes are longer than any token (%d); pass the token alone", len(s), MaxLen)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
	text, ok := strings.CutPrefix(s, prefix)
	if !ok {
		if strings.HasPrefix(s, "mesh") && len(s) > 5 && s[4] >= '0' && s[4] <= '9' {
			return Token{}, errors.New("token: this token was made by a newer meshmpi; upgrade this node")
		}
		return Token{}, errors.New("token: this is no token, it does not begin with " + prefix + "; make one with meshctl token create")
	}
	b, err := encoding().DecodeString(text)
	if err != nil || len(b) < checksumLen || !bytes.Equal(checksum(b[:len(b)-checksumLen]), b[len(b)-checksumLen:]) {
		return Token{}, errors.New("token: this token is mistyped or cut short (its checksum is wrong); copy it again as a whole")
	}
	t, err := decode(b[:len(b)-checksumLen])
	if err == nil {
		err = t.check()
	}
	if err == nil && t.String() != s {
		err = errors.New("it is written in an unusual way")
	}
	if err != nil {
		return Token{}, fmt.Errorf("token: this token was made wrongly: %w; make another with meshctl token create", err)
	}
	return t, nil
}

// decode reads the binary form without its checksum.
func decode(b []byte) (t Token, err error) {
	if len(b) < fixedLen {
		return t, errors.New("it is too short")
	}
	b = b[copy(t.Root[:], b):]
	b = b[copy(t.ID[:], b):]
	b = b[copy(t.Secret[:], b):]
	if sec := binary.BigEndian.Uint64(b); sec > maxExpires {
		return t, errors.New("its expiry is out of range")
	} else if sec != 0 {
		t.Expires = time.Unix(int64(sec), 0).UTC()
	}
	b = b[8:]
	if t.Network, b, err = cutString(b); err != nil {
		return t, err
	}
	if t.Site, b, err = cutString(b); err != nil {
		return t, err
	}
	if len(b) == 0 || b[0] > MaxHubs {
		return t, errors.New("it names too many hubs")
	}
	t.Hubs = make([]string, b[0])
	b = b[1:]
	for i := range t.Hubs {
		if t.Hubs[i], b, err = cutString(b); err != nil {
			return t, err
		}
	}
	if len(b) != 0 {
		return t, errors.New("there is something behind it")
	}
	return t, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutString(b []byte) (s string, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > maxHub || n > uint64(len(b)-size) {
		return "", nil, errors.New("a name in it is cut short")
	}
	b = b[size:]
	return string(b[:n]), b[n:], nil
}

func checksum(b []byte) []byte {
	h := sha256.New()
	h.Write([]byte(prefix))
	h.Write(b)
	return h.Sum(nil)[:checksumLen]
}

// ErrNone says that Read was given no token.
var ErrNone = errors.New("token: no token given; pass TOKEN, - for standard input or @FILE, or set $MESH_TOKEN")

// Read gets the token that a user named: arg is the token, "-" for standard
// input, "@FILE" for a file, or "" for the value env of $MESH_TOKEN.
func Read(arg string, stdin io.Reader, env string) (Token, error) {
	switch {
	case arg == "-":
		return readFrom(stdin, "standard input")
	case strings.HasPrefix(arg, "@"):
		f, err := os.Open(arg[1:])
		if err != nil {
			return Token{}, fmt.Errorf("token: %w; after @ goes a file that holds a token", err)
		}
		defer f.Close()
		return readFrom(f, arg[1:])
	case arg != "":
		return Parse(arg)
	case strings.TrimSpace(env) != "":
		t, err := Parse(env)
		if err != nil {
			return Token{}, fmt.Errorf("$MESH_TOKEN: %w", err)
		}
		return t, nil
	}
	return Token{}, ErrNone
}

func readFrom(r io.Reader, name string) (Token, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxLen+1))
	if err != nil {
		return Token{}, fmt.Errorf("token: read %s: %w", name, err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return Token{}, fmt.Errorf("token: %s is empty; it should hold a token", name)
	}
	t, err := Parse(string(b))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
