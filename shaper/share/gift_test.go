package share

import (
	"bytes"
	"testing"
	"time"
)

// FuzzParseGift: what is taken for a notice says the same when it is written anew.
func FuzzParseGift(f *testing.F) {
	f.Add(Gift{Pool: PoolName("beta"), Bytes: 18000, Asked: 17 * time.Second}.Append(nil))
	f.Add(Gift{Does: Gives, Pool: 1, Bytes: 1, Asked: 0}.Append(nil))
	f.Add(Gift{Does: Gives, Bytes: 0}.Append(nil))
	f.Add(Gift{Does: Offers, Pool: 1}.Append(nil))
	f.Add(Gift{Does: Offers, Pool: 1, Asked: time.Second}.Append(nil))
	f.Add([]byte{kindSite})
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGift(data)
		if err != nil {
			return
		}
		if g.Bytes < 0 || g.Asked < 0 || (g.Bytes == 0) != (g.Does == Offers) {
			t.Fatalf("%+v", g)
		}
		if again := g.Append(nil); !bytes.Equal(again, data) {
			t.Errorf("%x is written as %x", data, again)
		}
	})
}

// TestGiftKinds: notices of gifts are told from all others by their first byte.
func TestGiftKinds(t *testing.T) {
	n := notice{kind: kindSite}
	for _, tt := range []struct {
		data []byte
		want bool
	}{{Gift{Bytes: 1}.Append(nil), true}, {Gift{Does: Gives, Bytes: 1}.Append(nil), true}, {Gift{Does: Offers}.Append(nil), true}, {n.append(nil), false}, {nil, false}} {
		if got := IsGift(tt.data); got != tt.want {
			t.Errorf("%x is one of gifts: %v", tt.data, got)
		}
		if _, err := parseNotice(tt.data); tt.want && err == nil {
			t.Errorf("%x is another notice, too", tt.data)
		}
	}
}
