package mpi

import "sync"

// Key names an attribute that values of type V are kept under (MPI 4.1 §7.7).
// It is made by NewKey and may be used on any number of communicators.
type Key[V any] struct{ *keyState }

type keyState struct {
	copy   func(v any) (any, bool)
	remove func(v any) error
	mu     sync.Mutex // guards freed
	freed  bool
}

// KeyOptions say what happens to an attribute when its communicator is
// duplicated or freed.
type KeyOptions[V any] struct {
	Copy   func(v V) (copied V, keep bool) // at Dup; nil: the duplicate has none
	Delete func(v V) error                 // at DeleteAttr, Free, and when another value takes its place; an error fails that call
}

// DupValue is a KeyOptions.Copy that hands the same value on (MPI_COMM_DUP_FN).
func DupValue[V any](v V) (V, bool) { return v, true }

// NewKey makes a new attribute key.
func NewKey[V any](o KeyOptions[V]) Key[V] {
	k := &keyState{}
	if o.Copy != nil {
		k.copy = func(v any) (any, bool) { return o.Copy(valueOf[V](v)) }
	}
	if o.Delete != nil {
		k.remove = func(v any) error { return o.Delete(valueOf[V](v)) }
	}
	return Key[V]{k}
}

// valueOf returns an attribute as the type of its key. (One of an interface type may be nil.)
func valueOf[V any](a any) V {
	v, _ := a.(V)
	return v
}

// Free says that no more values will be set. Those that are set stay until they
// are deleted, as in MPI.
func (k Key[V]) Free() {
	if k.keyState == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.freed = true
}

func (k *keyState) valid() bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.freed
}

// attrs are the attributes of a communicator or window.
type attrs struct {
	hints *hints // where a communicator's MATB takes effect; nil: nowhere

	mu    sync.Mutex // guards order and of
	order []*keyState
	of    map[*keyState]any
	going map[*keyState]chan struct{} // those whose Delete runs; closed after that
}

func (a *attrs) set(op string, k *keyState, v any) error {
	if !k.valid() {
		return fail(op, ErrKeyval, "the key was not made by NewKey, or was freed")
	}
	if k == MaxRate.keyState {
		return fail(op, ErrKeyval, "MaxRate is meshd's to say; set MATB")
	}
	for placed := false; !placed; placed = a.put(k, v) { // another may have set it since
		if err := a.remove(op, k, true); err != nil {
			return err
		}
	}
	if k == MATB.keyState {
		a.hints.inForce(a, v.(Rate))
	}
	return nil
}

// put stores a value in a place that has none; false: it has one.
func (a *attrs) put(k *keyState, v any) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[*keyState]any{}
	}
	if _, ok := a.of[k]; ok {
		return false
	}
	a.order = append(a.order, k)
	a.of[k] = v
	return true
}

// claim returns a value that the caller alone deletes, until settle; it waits for who
// deletes it already.
func (a *attrs) claim(k *keyState) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.going[k] != nil {
		c := a.going[k]
		a.mu.Unlock()
		<-c
		a.mu.Lock()
	}
	v, ok := a.of[k]
	if ok {
		if a.going == nil {
			a.going = map[*keyState]chan struct{}{}
		}
		a.going[k] = make(chan struct{})
	}
	return v, ok
}

// settle ends a claim; the value is gone, or stays.
func (a *attrs) settle(k *keyState, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.going[k])
	delete(a.going, k)
	if !gone {
		return
	}
	delete(a.of, k)
	for i, o := range a.order {
		if o == k {
			a.order = append(a.order[:i:i], a.order[i+1:]...)
			break
		}
	}
}

func (a *attrs) get(k *keyState) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.of[k]
	return v, ok
}

// delete removes an attribute and its effect.
func (a *attrs) delete(op string, k *keyState, absentGood bool) error {
	if err := a.remove(op, k, absentGood); err != nil {
		return err
	}
	if k == MATB.keyState {
		a.hints.withdrawn(a)
	}
	return nil
}

// remove runs the delete function without holding the lock: it is the user's.
func (a *attrs) remove(op string, k *keyState, absentGood bool) error {
	v, ok := a.claim(k)
	if !ok {
		if absentGood {
			return nil
		}
		return fail(op, ErrKeyval, "the attribute is not set")
	}
	gone := false
	defer func() { a.settle(k, gone) }() // a function that panics keeps nobody waiting
	if k.remove != nil {
		if err := k.remove(v); err != nil {
			return &Error{Op: op, Class: ErrOther, Peer: -1, Err: err}
		}
	}
	gone = true
	return nil
}

// copyTo gives a duplicate, which has none yet, what its copy functions say:
// those of freed keys as well, since a key ends with its last value (§7.7.2).
func (a *attrs) copyTo(to *attrs) {
	a.mu.Lock()
	order := append([]*keyState(nil), a.order...)
	a.mu.Unlock()
	for _, k := range order {
		v, ok := a.get(k)
		if !ok || k.copy == nil {
			continue
		}
		if d, keep := k.copy(v); keep {
			to.put(k, d)
		}
	}
}

// clear deletes all, last set first (MPI 4.1 §7.7.1 asks for that order on Self).
func (a *attrs) clear(op string) error {
	for {
		a.mu.Lock()
		n := len(a.order)
		if n == 0 {
			a.mu.Unlock()
			return nil
		}
		k := a.order[n-1]
		a.mu.Unlock()
		if err := a.delete(op, k, true); err != nil {
			return err
		}
	}
}

// SetAttr sets an attribute of a communicator.
func SetAttr[V any](c *Comm, k Key[V], v V) error {
	if err := c.exists("SetAttr"); err != nil {
		return err
	}
	return c.attrs.set("SetAttr", k.keyState, v)
}

// GetAttr returns an attribute and whether it is set.
func GetAttr[V any](c *Comm, k Key[V]) (v V, ok bool) {
	if k.keyState == nil || c == nil || c.comm == nil {
		return v, false
	}
	if k.keyState == MaxRate.keyState {
		r := c.attrs.hints.maxRate()
		v, _ = any(r).(V)
		return v, r > 0
	}
	a, ok := c.attrs.get(k.keyState)
	if !ok {
		return v, false
	}
	return valueOf[V](a), true
}

// DeleteAttr deletes an attribute, running the key's Delete.
func DeleteAttr[V any](c *Comm, k Key[V]) error {
	if err := c.exists("DeleteAttr"); err != nil {
		return err
	}
	if k.keyState == nil {
		return fail("DeleteAttr", ErrKeyval, "the key was not made by NewKey")
	}
	return c.attrs.delete("DeleteAttr", k.keyState, false)
}
