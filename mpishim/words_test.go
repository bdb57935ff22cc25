package mpishim

import (
	"encoding/json"
	"slices"
	"testing"
)

// FuzzWords: words come through whatever their bytes are, and what is no list of them
// is an error.
func FuzzWords(f *testing.F) {
	f.Add("plain", []byte(`["a",{"Bytes":"/w=="}]`))
	f.Add("\xff\xfe", []byte(`[1]`))
	f.Add("{", []byte(`{"Bytes":""}`))
	f.Fuzz(func(t *testing.T, s string, b []byte) {
		in := words{s, "", s + s}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out words
		if err := json.Unmarshal(raw, &out); err != nil || !slices.Equal(in, out) {
			t.Errorf("%q come as %q, %v", in, out, err)
		}
		_ = out.UnmarshalJSON(b) // it does not panic
	})
}
