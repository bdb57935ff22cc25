package mpi_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/meshmpi/meshmpi/mpi"
)

// counted is a key whose functions count their calls; copies are handed on.
func counted(copies, deletes *int) mpi.Key[int] {
	return mpi.NewKey(mpi.KeyOptions[int]{
		Copy:   func(v int) (int, bool) { *copies++; return v, true },
		Delete: func(int) error { *deletes++; return nil },
	})
}

// attrIs ends the case unless an attribute has a value.
func attrIs(c *mpi.Comm, k mpi.Key[int], want int) {
	if v, ok := mpi.GetAttr(c, k); !ok || v != want {
		endCase(fmt.Errorf("the attribute is %d, %v; want %d", v, ok, want))
	}
}

// attrGone ends the case if an attribute is set.
func attrGone(c *mpi.Comm, k mpi.Key[int]) {
	if v, ok := mpi.GetAttr(c, k); ok {
		endCase(fmt.Errorf("the attribute is %d, want none", v))
	}
}

var mpichAttr = []mpichCase{
	{file: "attr/attrt.c", ranks: 3, body: func(c *mpi.Comm) error {
		copies, deletes := 0, 0
		k := counted(&copies, &deletes)
		none := mpi.NewKey(mpi.KeyOptions[int]{})
		d := get(c.Dup())
		must(mpi.SetAttr(d, k, 7), mpi.SetAttr(d, none, 8))
		e := get(d.Dup())
		attrIs(e, k, 7)
		attrGone(e, none)
		s := get(d.Split(0, -c.Rank()))
		attrGone(s, k)
		is("copies", copies, 1)
		must(s.Free(), e.Free(), d.Free())
		is("deletes", deletes, 2)
		return nil
	}},
	{file: "attr/attrend.c", ranks: 1, body: func(c *mpi.Comm) error {
		copies, deletes := 0, 0
		w := c.World()
		must(mpi.SetAttr(w.Self(), counted(&copies, &deletes), 1), w.Finalize())
		is("deletes in Finalize", deletes, 1)
		return nil
	}},
	{file: "attr/attrend2.c", ranks: 2, body: func(c *mpi.Comm) error {
		var order []int
		for i := range 20 {
			k := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(v int) error { order = append(order, v); return nil }})
			must(mpi.SetAttr(c.World().Self(), k, 19-i))
		}
		must(c.World().Finalize())
		are("order of deletion", order, seq(0, 20))
		return nil
	}},
	{file: "attr/attrerr.c", ranks: 1, body: func(c *mpi.Comm) error {
		refuse := true
		k := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error {
			if refuse {
				return errors.New("not now")
			}
			return nil
		}})
		d := get(c.Dup())
		must(mpi.SetAttr(d, k, 1))
		if err := mpi.DeleteAttr(d, k); err == nil {
			return errors.New("DeleteAttr succeeds against the delete function")
		}
		if err := mpi.SetAttr(d, k, 2); err == nil {
			return errors.New("SetAttr replaces a value against the delete function")
		}
		attrIs(d, k, 1)
		refuse = false
		return first(mpi.SetAttr(d, k, 3), d.Free())
	}},
	{file: "attr/attrerrcomm.c", ranks: 2, body: func(c *mpi.Comm) error {
		k := mpi.NewKey(mpi.KeyOptions[int]{Copy: func(v int) (int, bool) { return 0, v != 1 }})
		d := get(c.Dup())
		must(mpi.SetAttr(d, k, 1))
		e := get(d.Dup())
		attrGone(e, k)
		must(mpi.SetAttr(d, k, 2))
		f := get(d.Dup())
		attrIs(f, k, 0)
		return first(d.Free(), e.Free(), f.Free())
	}},
	{file: "attr/attric.c", ranks: 3, body: func(c *mpi.Comm) error {
		copies, deletes := 0, 0
		k := counted(&copies, &deletes)
		x := halves(c, 1)
		must(mpi.SetAttr(x, k, 5))
		y := get(x.Dup())
		attrIs(y, k, 5)
		must(mpi.DeleteAttr(y, k))
		attrGone(y, k)
		attrIs(x, k, 5)
		must(y.Free(), x.Free())
		is("deletes", deletes, 2)
		is("copies", copies, 1)
		return nil
	}},
	{file: "attr/attrordercomm.c", ranks: 1, body: func(c *mpi.Comm) error {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
			d := get(c.Dup())
			keys := make([]mpi.Key[int], 3)
			for i := range keys {
				keys[i] = mpi.NewKey(mpi.KeyOptions[int]{})
				must(mpi.SetAttr(d, keys[i], i))
			}
			for n, i := range order {
				attrIs(d, keys[i], i)
				must(mpi.DeleteAttr(d, keys[i]))
				attrGone(d, keys[i])
				for _, j := range order[n+1:] {
					attrIs(d, keys[j], j)
				}
				refused("deleting it twice", mpi.DeleteAttr(d, keys[i]), mpi.ErrKeyval)
			}
			must(d.Free())
		}
		return nil
	}},
	{file: "attr/attrorder.c", ranks: 1, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		keys := make([]mpi.Key[int], 20)
		for i := range keys {
			keys[i] = mpi.NewKey(mpi.KeyOptions[int]{Copy: mpi.DupValue[int]})
			must(mpi.SetAttr(d, keys[i], i))
		}
		for i := 0; i < len(keys); i += 3 {
			must(mpi.SetAttr(d, keys[i], -i))
		}
		e := get(d.Dup())
		for i, k := range keys {
			v := i
			if i%3 == 0 {
				v = -i
			}
			attrIs(d, k, v)
			attrIs(e, k, v)
		}
		return first(d.Free(), e.Free())
	}},
	{file: "attr/attrdelete.c", ranks: 1, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		a, b := mpi.NewKey(mpi.KeyOptions[int]{}), mpi.NewKey(mpi.KeyOptions[int]{})
		both := mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error {
			return first(mpi.DeleteAttr(d, a), mpi.DeleteAttr(d, b))
		}})
		must(mpi.SetAttr(d, a, 1), mpi.SetAttr(d, both, 2), mpi.SetAttr(d, b, 3))
		must(mpi.DeleteAttr(d, both))
		attrGone(d, a)
		attrGone(d, both)
		attrGone(d, b)
		return d.Free()
	}},
	{file: "attr/attrdeleteget.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Split(1, 0))
		var k mpi.Key[int]
		during := 0
		k = mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error {
			v, ok := mpi.GetAttr(d, k)
			if !ok {
				return errors.New("it is gone already")
			}
			during = v
			return nil
		}})
		must(mpi.SetAttr(d, k, 9), d.Free())
		is("seen by the delete function", during, 9)
		return nil
	}},
	{file: "attr/baseattrcomm.c", ranks: 2, body: func(c *mpi.Comm) error {
		w := c.World()
		if mpi.MaxTag < 32767 {
			return errors.New("MaxTag is too small")
		}
		if n := w.UniverseSize(); n != 0 && n < c.Size() {
			return fmt.Errorf("a universe of %d for %d ranks", n, c.Size())
		}
		is("appnum", w.Appnum(), 0)
		return nil
	}},
	{file: "attr/baseattr2.c", ranks: 2, body: func(c *mpi.Comm) error {
		d := get(c.Dup())
		must(mpi.SetAttr(d, mpi.MATB, 5e8))
		e := get(d.Dup())
		if v, ok := mpi.GetAttr(e, mpi.MATB); !ok || v != 5e8 {
			return fmt.Errorf("MATB of the duplicate: %v, %v", v, ok)
		}
		if v, ok := mpi.GetAttr(e, mpi.MaxRate); ok && v <= 0 {
			return fmt.Errorf("MaxRate %d", v)
		}
		return first(d.Free(), e.Free())
	}},
	{file: "attr/fkeyval.c", ranks: 2, body: func(c *mpi.Comm) error {
		copies, deletes := 0, 0
		k := counted(&copies, &deletes)
		d := get(c.Dup())
		must(mpi.SetAttr(d, k, 3))
		k.Free()
		e := get(d.Dup())
		is("copies", copies, 1)
		attrIs(e, k, 3)
		must(d.Free(), e.Free())
		is("deletes", deletes, 2)
		return nil
	}},
	{file: "attr/fkeyvalcomm.c", ranks: 3, body: func(c *mpi.Comm) error {
		copies, deletes := 0, 0
		k := counted(&copies, &deletes)
		x := halves(c, 2)
		must(mpi.SetAttr(x, k, 4))
		k.Free()
		refused("a value for a freed key", mpi.SetAttr(c, k, 1), mpi.ErrKeyval)
		y := get(x.Dup())
		attrIs(y, k, 4)
		must(mpi.DeleteAttr(y, k), y.Free(), x.Free())
		is("deletes", deletes, 2)
		return nil
	}},
	{file: "attr/keyval_double_free_comm.c", ranks: 1, body: func(c *mpi.Comm) error {
		var k mpi.Key[int]
		k = mpi.NewKey(mpi.KeyOptions[int]{Delete: func(int) error { k.Free(); return nil }})
		d := get(c.Dup())
		must(mpi.SetAttr(d, k, 1))
		k.Free()
		must(mpi.DeleteAttr(d, k))
		k.Free()
		return d.Free()
	}},
}

var mpichInfo = []mpichCase{
	{file: "info/infodel.c", ranks: 1, body: func(*mpi.Comm) error {
		var i mpi.Info
		must(i.Set("a", "1"), i.Set("b", "2"), i.Set("c", "3"), i.Delete("b"))
		if _, ok := i.Get("b"); ok {
			return errors.New("a deleted key is there")
		}
		refused("deleting it twice", i.Delete("b"), mpi.ErrInfo)
		are("keys", i.Keys(), []string{"a", "c"})
		return nil
	}},
	{file: "info/infodup.c", ranks: 1, body: func(*mpi.Comm) error {
		var i mpi.Info
		must(i.Set("host", "myhost"), i.Set("file", "run"))
		d := i.Dup()
		are("keys", d.Keys(), i.Keys())
		must(d.Delete("host"), i.Set("file", "other"))
		v, _ := d.Get("file")
		is("the duplicate's value", v, "run")
		are("the original's keys", i.Keys(), []string{"host", "file"})
		return nil
	}},
	{file: "info/infoget.c", ranks: 1, body: func(*mpi.Comm) error {
		var i mpi.Info
		must(i.Set("key", "value"), i.Set("key", "another, longer"))
		v, ok := i.Get("key")
		is("value", v, "another, longer")
		is("there", ok, true)
		_, ok = i.Get("Key")
		is("another case", ok, false)
		return nil
	}},
	{file: "info/infomany.c", ranks: 1, body: func(*mpi.Comm) error {
		infos := make([]mpi.Info, 35)
		for n := range infos {
			for k := range 10 {
				must(infos[n].Set(fmt.Sprint("key", k), fmt.Sprint(n, " ", k)))
			}
		}
		for n := range infos {
			for k := range 10 {
				v, _ := infos[n].Get(fmt.Sprint("key", k))
				is("value", v, fmt.Sprint(n, " ", k))
			}
		}
		return nil
	}},
	{file: "info/infoorder.c", ranks: 1, body: func(*mpi.Comm) error {
		var i mpi.Info
		keys := []string{"z", "file", "soft", "host", "a"}
		for _, k := range keys {
			must(i.Set(k, k))
		}
		must(i.Set("soft", "again"))
		are("keys", i.Keys(), keys)
		return nil
	}},
	{file: "info/infotest.c", ranks: 1, body: func(*mpi.Comm) error {
		var i mpi.Info
		refused("no key", i.Set("", "x"), mpi.ErrInfo)
		must(i.Set("empty", ""))
		_, ok := i.Get("empty")
		is("an empty value is there", ok, true)
		return nil
	}},
	{file: "info/infovallen.c", ranks: 1, body: func(*mpi.Comm) error {
		var i mpi.Info
		key, val := string(fill(byte('k'), mpi.MaxInfoKey)), string(fill(byte('v'), mpi.MaxInfoVal))
		must(i.Set(key, val))
		v, _ := i.Get(key)
		is("length", len(v), mpi.MaxInfoVal)
		refused("a longer key", i.Set(key+"k", "v"), mpi.ErrInfo)
		refused("a longer value", i.Set("k", val+"v"), mpi.ErrInfo)
		return nil
	}},
	{file: "info/info_no_init.c", ranks: 1, body: func(c *mpi.Comm) error {
		must(c.World().Finalize())
		var wg sync.WaitGroup
		errs := make([]error, 4) // an Info each
		for n := range errs {
			wg.Go(func() {
				var i mpi.Info
				errs[n] = first(i.Set("k", "v"), i.Dup().Delete("k"))
			})
		}
		wg.Wait()
		return first(errs...)
	}},
}
