package mpishim

import (
	"encoding/json"
	"unicode/utf8"
)

// words are arguments and variables, which may hold any bytes but zero; JSON's texts are
// Unicode. In JSON they are texts, or, where they are no UTF-8, {"Bytes": in base 64}.
type words []string

type rawWord struct{ Bytes []byte }

// MarshalJSON implements json.Marshaler.
func (w words) MarshalJSON() ([]byte, error) {
	list := make([]any, len(w))
	for i, s := range w {
		if list[i] = s; !utf8.ValidString(s) {
			list[i] = rawWord{[]byte(s)}
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*w = make(words, len(list))
	for i, m := range list {
		if len(m) > 0 && m[0] == '{' {
			var raw rawWord
			if err := json.Unmarshal(m, &raw); err != nil {
				return err
			}
			(*w)[i] = string(raw.Bytes)
		} else if err := json.Unmarshal(m, &(*w)[i]); err != nil {
			return err
		}
	}
	return nil
}
