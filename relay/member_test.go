package relay

import (
	"testing"
	"time"
)

// TestBindingEnds goes through everything that ends a binding, and finds that
// the node then neither sends nor receives.
func TestBindingEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(b *rig, a Grant)
	}{
		{"no bind for its life", func(b *rig, _ Grant) { b.time = b.time.Add(BindingLife) }},
		{"revoked", func(b *rig, _ Grant) { b.Revoke(node('a')) }},
		{"left", func(b *rig, a Grant) {
			if out := b.input(addrA, bindFrame(a, uint64(b.time.UnixNano())+1, flagLeave)); out != nil {
				b.t.Errorf("a leave was answered with %v", out)
			}
		}},
		{"admitted for less", func(b *rig, _ Grant) {
			b.admitUntil(node('a'), b.time.Add(time.Second))
			b.time = b.time.Add(time.Second)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newRig(t, ServerConfig{})
			a, c := b.admit(node('a')), b.admit(node('b'))
			b.bind(a, addrA)
			b.bind(c, addrB)
			if !b.forwards(addrA, node('b'), addrB) || !b.forwards(addrB, node('a'), addrA) {
				t.Fatal("bound nodes do not reach each other")
			}
			tc.end(b, a)
			b.bind(c, addrB)
			if b.forwards(addrA, node('b'), addrB) || b.forwards(addrB, node('a'), addrA) {
				t.Error("still forwards")
			}
		})
	}
}

func TestRevokedCannotBindAgain(t *testing.T) {
	b := newRig(t, ServerConfig{})
	g := b.admit(node('a'))
	b.bind(g, addrA)
	b.Revoke(node('a'))
	b.Revoke(node('q')) // was never admitted
	if out := b.input(addrA, bindFrame(g, uint64(b.time.UnixNano())+1, 0)); out != nil {
		t.Errorf("a revoked node's bind was answered with %v", out)
	}
	if st := b.Stats(); st.Grants != 0 || st.Bindings != 0 || st.Drops.Unknown != 1 {
		t.Errorf("Stats() = %+v", st)
	}
}

func TestGrantExpires(t *testing.T) {
	b := newRig(t, ServerConfig{})
	a := b.admitUntil(node('a'), b.time.Add(30*time.Second))
	c := b.admit(node('b'))
	b.bind(a, addrA)
	b.bind(c, addrB)
	b.time = b.time.Add(29 * time.Second)
	if !b.forwards(addrA, node('b'), addrB) {
		t.Error("does not forward before the grant's end")
	}
	b.bind(a, addrA) // a keepalive must not outlast the grant
	b.time = b.time.Add(time.Second)
	if b.forwards(addrA, node('b'), addrB) || b.forwards(addrB, node('a'), addrA) {
		t.Error("forwards after the grant's end")
	}
	if st := b.Stats(); st.Grants != 1 || st.Bindings != 1 {
		t.Errorf("Stats() = %+v, want 1 grant and 1 binding", st)
	}
}

func TestReadmissionDoesNotCutBinding(t *testing.T) {
	b := newRig(t, ServerConfig{})
	first := b.admit(node('a'))
	b.bind(first, addrA)
	b.bind(b.admit(node('b')), addrB)
	b.admit(node('a')) // never arrives
	b.bind(first, addrA)
	second := b.admit(node('a'))
	b.bind(first, addrA)
	if !b.forwards(addrA, node('b'), addrB) {
		t.Error("a new admission cut the binding")
	}
	b.bind(second, addrA)
	if out := b.input(addrX, bindFrame(first, uint64(b.time.UnixNano())+1, 0)); out != nil {
		t.Error("the key used before is still good once the new one is used")
	}
	if !b.forwards(addrA, node('b'), addrB) {
		t.Error("the binding did not survive the change of keys")
	}
}

// TestGrantsOvertake: a node that has two control sessions for a moment, as with a hub
// that it knows by two addresses, gets a grant by each, and goes by the one that comes
// last, whichever was made last.
func TestGrantsOvertake(t *testing.T) {
	b := newRig(t, ServerConfig{})
	b.bind(b.admit(node('b')), addrB)
	first := b.admit(node('a'))
	b.admit(node('a'))
	b.bind(first, addrA)
	if !b.forwards(addrB, node('a'), addrA) {
		t.Error("a node that goes by the first of two grants is not reached")
	}
	if again := b.admit(node('a')); again.Key == first.Key {
		t.Error("a key that is in use is granted again")
	}
}

func TestOldKeyEndsWithGrace(t *testing.T) {
	b := newRig(t, ServerConfig{})
	old := b.admit(node('a'))
	b.bind(old, addrA)
	b.admit(node('a'))
	b.time = b.time.Add(Grace)
	if out := b.input(addrA, bindFrame(old, uint64(b.time.UnixNano()), 0)); out != nil {
		t.Error("the old key is good after its grace")
	}
}

func TestAdmitRefuses(t *testing.T) {
	b := newRig(t, ServerConfig{MaxBindings: 2})
	short := b.admitUntil(node('a'), b.time.Add(time.Second))
	b.admit(node('b'))
	if _, err := b.Admit(node('c'), b.time); err == nil {
		t.Error("admitted until now")
	}
	if _, err := b.Admit(node('c'), b.time.Add(time.Hour)); err == nil {
		t.Error("admitted more nodes than the limit")
	}
	b.admit(node('b')) // one that is in already needs no room
	b.time = short.Expires
	b.admit(node('c')) // a's place is free

	b.members[node('d').Short()] = b.members[node('b').Short()]
	if _, err := b.Admit(node('d'), b.time.Add(time.Hour)); err == nil {
		t.Error("admitted two nodes of one short name")
	}
}
