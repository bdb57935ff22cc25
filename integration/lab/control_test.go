package lab

import (
	"strings"
	"testing"
)

func FuzzDecodeRequest(f *testing.F) {
	f.Add(`{"Op":"show"}`)
	f.Add(`{"Op":"wan","Site":"alpha","Link":{"Up":{"Delay":1000,"Rate":1000000,"Loss":0.5}}}`)
	f.Add(`{"Op":"nat","Site":"alpha","NAT":"symmetric"}`)
	f.Add(`{"Op":"off","Host":"` + strings.Repeat("x", maxRequest) + `"}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decodeRequest(strings.NewReader(text))
		if err == nil && (operations[r.Op] == nil || r.Link.Validate() != nil) {
			t.Errorf("%q was accepted as %+v", text, r)
		}
	})
}
