package mpi

import "slices"

// Info holds hints as keys and values, in the order of their first setting
// (MPI 4.1 chapter 10). Keys nobody knows are kept and have no effect. It is not
// for use by several goroutines at once. The zero Info is empty and ready.
type Info struct {
	keys   []string
	values map[string]string
}

// Limits of MPI 4.1 §10: longer keys and values are refused.
const (
	MaxInfoKey = 255
	MaxInfoVal = 8191
)

// Set sets a key, in place of its former value.
func (i *Info) Set(key, value string) error {
	switch {
	case key == "" || len(key) > MaxInfoKey:
		return fail("Info.Set", ErrInfo, "a key of %d bytes; 1 to %d are allowed", len(key), MaxInfoKey)
	case len(value) > MaxInfoVal:
		return fail("Info.Set", ErrInfo, "the value of %s has %d bytes; %d are allowed", key, len(value), MaxInfoVal)
	}
	if i.values == nil {
		i.values = map[string]string{}
	}
	if _, ok := i.values[key]; !ok {
		i.keys = append(i.keys, key)
	}
	i.values[key] = value
	return nil
}

// Get returns a key's value and whether it is there. A nil Info has none.
func (i *Info) Get(key string) (value string, ok bool) {
	if i == nil {
		return "", false
	}
	value, ok = i.values[key]
	return value, ok
}

// Delete removes a key.
func (i *Info) Delete(key string) error {
	if _, ok := i.Get(key); !ok {
		return fail("Info.Delete", ErrInfo, "no key %s", key)
	}
	delete(i.values, key)
	i.keys = slices.DeleteFunc(i.keys, func(k string) bool { return k == key })
	return nil
}

// Keys returns the keys in the order in which they were set first.
func (i *Info) Keys() []string {
	if i == nil {
		return nil
	}
	return slices.Clone(i.keys)
}

// Dup returns a copy.
func (i *Info) Dup() *Info {
	d := &Info{}
	for _, k := range i.Keys() {
		_ = d.Set(k, i.values[k]) // was within the limits
	}
	return d
}
