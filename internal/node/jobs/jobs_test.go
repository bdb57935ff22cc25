package jobs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	start = time.Unix(1_000_000, 0)
	here  = Record{netip.MustParseAddrPort("100.80.0.1:4567"), "secret"}
	there = Record{netip.MustParseAddrPort("100.80.0.2:4567"), "other"}
)

// job names a user's job by a number.
func job(uid uint32, n int) ID { return ID{uid, fmt.Sprintf("%032x", n)} }

// has says whether the book holds a job's record, and which.
func has(b *Book, now time.Time, id ID) string {
	r, ok, _ := b.Get(now, id)
	if !ok {
		return ""
	}
	return r.Addr.String()
}

func TestLease(t *testing.T) {
	var b Book
	put := func(after time.Duration, r Record) {
		t.Helper()
		if err := b.Put(start.Add(after), job(1000, 1), r); err != nil {
			t.Fatal(err)
		}
	}
	want := func(after time.Duration, id ID, addr string) {
		t.Helper()
		if got := has(&b, start.Add(after), id); got != addr {
			t.Errorf("after %v: job %v is at %q, want %q", after, id, got, addr)
		}
	}
	count := func(after time.Duration, n int) {
		t.Helper()
		if got := b.Len(start.Add(after)); got != n {
			t.Errorf("after %v there are %d records, want %d", after, got, n)
		}
	}
	want(0, job(1000, 1), "")
	count(0, 0)
	put(0, here)
	count(Lease-1, 1)
	want(Lease-1, job(1000, 1), "100.80.0.1:4567")
	want(0, job(1001, 1), "") // another user's
	want(0, job(1000, 2), "")
	want(Lease, job(1000, 1), "")
	put(Lease-1, here) // renewed
	want(2*Lease-2, job(1000, 1), "100.80.0.1:4567")
	b.Remove(job(1000, 1), there.Addr) // whose it is not
	b.Remove(job(1001, 1), here.Addr)
	want(Lease, job(1000, 1), "100.80.0.1:4567")
	put(Lease, there) // a new job of the same name
	want(Lease, job(1000, 1), "100.80.0.2:4567")
	b.Remove(job(1000, 1), here.Addr) // the old one says goodbye late
	want(Lease, job(1000, 1), "100.80.0.2:4567")
	b.Remove(job(1000, 1), there.Addr)
	want(Lease, job(1000, 1), "")
	if len(b.leases) != 0 || len(b.of) != 0 {
		t.Errorf("left: %v, %v", b.leases, b.of)
	}
}

// TestLater: who waits is woken by a record that is new, not by a renewal.
func TestLater(t *testing.T) {
	var b Book
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	if err := b.Put(start, job(1000, 1), here); err != nil {
		t.Fatal(err)
	}
	_, _, later := b.Get(start, job(1000, 2))
	if err := b.Put(start, job(1000, 1), here); err != nil || closed(later) {
		t.Errorf("a renewal wakes (%v)", err)
	}
	if err := b.Put(start, job(1000, 2), here); err != nil || !closed(later) {
		t.Errorf("a new record does not wake (%v)", err)
	}
}

func TestBounds(t *testing.T) {
	var b Book
	for i := range MaxOfUser {
		if err := b.Put(start, job(1000, i), here); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put(start, job(1000, MaxOfUser), here); !errors.Is(err, ErrFull) {
		t.Errorf("beyond a user's share: %v", err)
	}
	if err := b.Put(start, job(1000, 0), there); err != nil {
		t.Errorf("in place of another: %v", err)
	}
	for i := range MaxAll - MaxOfUser {
		if err := b.Put(start, job(uint32(2000+i), 0), here); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put(start, job(1, 0), here); !errors.Is(err, ErrFull) {
		t.Errorf("beyond everybody's: %v", err)
	}
	if err := b.Put(start.Add(Lease), job(1, 0), here); err != nil || len(b.leases) != 1 || len(b.of) != 1 {
		t.Errorf("after all have expired: %v, %d left", err, len(b.leases))
	}
}

func TestRefuse(t *testing.T) {
	var b Book
	good := job(1000, 1)
	for name, tc := range map[string]struct {
		id ID
		r  Record
	}{
		"short key":     {ID{1000, "abc"}, here},
		"capital key":   {ID{1000, strings.Repeat("A", keyLen)}, here},
		"no key":        {ID{}, here},
		"no address":    {good, Record{Secret: "x"}},
		"no port":       {good, Record{netip.AddrPortFrom(here.Addr.Addr(), 0), "x"}},
		"no secret":     {good, Record{Addr: here.Addr}},
		"endless words": {good, Record{here.Addr, strings.Repeat("x", MaxSecret+1)}},
	} {
		if err := b.Put(start, tc.id, tc.r); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
