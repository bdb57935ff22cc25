package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// boards opens a board of all engines, which are linked before.
func boards(t *testing.T, es []*Engine) []*Board {
	t.Helper()
	members, slots := make([]Proc, len(es)), make([]int, len(es))
	each(es, func(i int, e *Engine) {
		members[i] = Proc(i)
		if slots[i] = e.ReserveBoard(); slots[i] < 0 {
			t.Error("no place for a board")
		}
		for d := 1; d < len(es); d++ {
			to := (i + d) % len(es)
			send(t, e, Proc(to), 99, nil)
			recv(t, e, Proc((i-d+len(es))%len(es)), 99, 0)
		}
	})
	bs := make([]*Board, len(es))
	for i, e := range es {
		if bs[i] = e.OpenBoard(world, members, slots); bs[i] == nil {
			t.Fatalf("engine %d does not see all the others", i)
		}
	}
	return bs
}

// show is one turn; what comes back is what all have shown.
func show(e *Engine, b *Board, turn uint32, data []byte) ([]byte, error) {
	all := make([]byte, len(data)*len(b.members))
	id, err := e.General()
	if err != nil {
		return nil, err
	}
	e.Do(func(op *Op) {
		err = op.Show(b, turn, data, all, func(op *Op, err error) { op.Complete(id, Status{}, err) })
		if err != nil {
			op.Complete(id, Status{}, err)
		}
	})
	_, err = e.Wait(id)
	return all, err
}

// shown is what member i shows in a turn.
func shown(turn, i, n int) []byte { return pattern(n, 100*turn+i) }

func onBoards(t *testing.T, n int, test func(t *testing.T, es []*Engine, bs []*Board)) {
	for _, k := range kinds {
		if k.name == "hub" || k.name == "shared" {
			t.Run(k.name, func(t *testing.T) {
				es := k.make(t, n)
				if k.name == "shared" && es[0].page == nil {
					t.Skip("no memory is shared between processes here")
				}
				test(t, es, boards(t, es))
			})
		}
	}
}

// TestBoard: everybody sees what everybody shows, however slow each is, whether it is to
// sleep or not.
func TestBoard(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		onBoards(t, n, func(t *testing.T, es []*Engine, bs []*Board) {
			each(es, func(i int, e *Engine) {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for turn := range 300 {
					size := turn * 7 % (MostShown + 1)
					if rng.IntN(40) == 0 {
						time.Sleep(time.Duration(rng.IntN(int(5 * time.Millisecond))))
					}
					got, err := show(e, bs[i], uint32(turn), shown(turn, i, size))
					if err != nil {
						t.Error(err)
						return
					}
					for m := range es {
						if part := got[m*size : (m+1)*size]; !bytes.Equal(part, shown(turn, m, size)) {
							t.Errorf("turn %d: %d sees %x of %d", turn, i, part, m)
							return
						}
					}
				}
			})
		})
	}
}

// TestBoardGivenUp: a turn that one has given up, before it was shown or after, ends
// nowhere where that is to be seen, and the next one does; also when that begins before
// the others have come to this.
func TestBoardGivenUp(t *testing.T) {
	onBoards(t, 3, func(t *testing.T, es []*Engine, bs []*Board) {
		const turns = 60
		each(es, func(i int, e *Engine) {
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			for turn := range turns {
				if rng.IntN(8) == 0 {
					time.Sleep(time.Duration(rng.IntN(int(time.Millisecond))))
				}
				if turn%3 != 1 {
					got, err := show(e, bs[i], uint32(turn), shown(turn, i, 8))
					if err != nil || !bytes.Equal(got, bytes.Join([][]byte{shown(turn, 0, 8), shown(turn, 1, 8), shown(turn, 2, 8)}, nil)) {
						t.Errorf("turn %d: %d sees %x, %v", turn, i, got, err)
						return
					}
					continue
				}
				all := make([]byte, 24)
				e.Do(func(op *Op) {
					switch {
					case i == 0 && turn%2 == 0:
						op.Void(bs[i], uint32(turn))
						return
					case i == 0: // it has been shown
						let := false
						_ = op.Show(bs[i], uint32(turn), make([]byte, 8), all, func(*Op, error) {
							if let {
								t.Error("a turn ends that was let go")
							}
						})
						let = bs[i].first != nil // or it has ended
						op.LetGo(bs[i], uint32(turn))
						return
					}
					err := op.Show(bs[i], uint32(turn), make([]byte, 8), all, func(*Op, error) {
						if turn%2 == 0 {
							t.Error("a turn ends that another has given up")
						}
					})
					if err != nil {
						t.Error(err)
					}
					op.LetGo(bs[i], uint32(turn)) // as who is told does
				})
			}
		})
	})
}

// TestBoardLength: what is longer or shorter than one's own is an error at those who see
// that.
func TestBoardLength(t *testing.T) {
	onBoards(t, 2, func(t *testing.T, es []*Engine, bs []*Board) {
		each(es, func(i int, e *Engine) {
			if _, err := show(e, bs[i], 1, make([]byte, 4+i)); !errors.As(err, new(ErrTruncate)) {
				t.Errorf("%d: got %v, want a truncation", i, err)
			}
			if got, err := show(e, bs[i], 2, []byte{byte(i)}); err != nil || !bytes.Equal(got, []byte{0, 1}) {
				t.Errorf("%d: then it sees %x, %v", i, got, err)
			}
			if _, err := show(e, bs[i], 3, make([]byte, MostShown+1)); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d: got %v, want %v", i, err, ErrTooLarge)
			}
		})
	})
}

// TestBoardOtherwise: who shows something and waits for one who sends messages instead is
// told.
func TestBoardOtherwise(t *testing.T) {
	onBoards(t, 2, func(t *testing.T, es []*Engine, bs []*Board) {
		go func() {
			time.Sleep(time.Millisecond)
			send(t, es[1], 0, 7, pattern(300, 0))
		}()
		if _, err := show(es[0], bs[0], 7, []byte{1}); !errors.As(err, new(ErrTruncate)) {
			t.Errorf("got %v, want a truncation", err)
		}
		recv(t, es[0], 1, 7, 300)
	})
	onBoards(t, 2, func(t *testing.T, es []*Engine, bs []*Board) {
		for turn := range uint32(3) { // what was shown before does not count
			each(es, func(i int, e *Engine) {
				if _, err := show(e, bs[i], turn, nil); err != nil {
					t.Error(err)
				}
			})
		}
		go func() {
			time.Sleep(5 * time.Millisecond) // and the other sleeps
			if _, err := show(es[1], bs[1], 7, []byte{1}); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v, want that the board was closed", err)
			}
		}()
		if _, err := es[0].Recv(&RecvArgs{From: 1, Context: world, Tag: 7, Buf: make([]byte, 1)}); !errors.As(err, new(ErrStray)) {
			t.Errorf("got %v, want that the other does something else", err)
		}
		es[1].Do(func(op *Op) { op.CloseBoard(bs[1], ErrClosed) })
	})
}

// TestBoardDeath: who waits for the dead is told, and what is begun after that fails;
// also where processors are shared.
func TestBoardDeath(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		onBoards(t, 3, func(t *testing.T, es []*Engine, bs []*Board) {
			dead := es[2]
			es = es[:2]
			waiting := make(chan struct{}, 2)
			go func() {
				<-waiting
				<-waiting
				time.Sleep(time.Millisecond)
				dead.gate.lock()
				dead.closed = true
				dead.stop()
				dead.gate.unlock()
				dead.unequip()
			}()
			each(es, func(i int, e *Engine) {
				if crowded {
					e.Do(func(*Op) { e.Crowd(true, 2) })
				}
				waiting <- struct{}{}
				for turn := range uint32(2) {
					if _, err := show(e, bs[i], turn, []byte{1}); !errors.As(err, new(ErrProcFailed)) {
						t.Errorf("%d, turn %d: got %v, want that a process has failed", i, turn, err)
					}
				}
			})
		})
	}
}

// TestBoardGivenUpByTheDead: whoever gives a turn up may die before it tells the others.
func TestBoardGivenUpByTheDead(t *testing.T) {
	onBoards(t, 2, func(t *testing.T, es []*Engine, bs []*Board) {
		es[1].Do(func(op *Op) { op.Void(bs[1], 1) })
		ended := make(chan error, 1)
		es[0].Do(func(op *Op) {
			if err := op.Show(bs[0], 1, []byte{1}, make([]byte, 2), func(_ *Op, err error) { ended <- err }); err != nil {
				t.Error(err)
			}
		})
		es[0].Poll()
		if len(ended) > 0 {
			t.Errorf("a turn that another has given up ends: %v", <-ended)
		}
		es[0].Fail(1, errors.New("it has gone"))
		select {
		case err := <-ended:
			if !errors.As(err, new(ErrProcFailed)) {
				t.Errorf("got %v, want that a process has failed", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("nobody is told")
		}
	})
}

// TestBoardLeave: what one shows who leaves, or dies, before the others look is seen.
func TestBoardLeave(t *testing.T) {
	onBoards(t, 3, func(t *testing.T, es []*Engine, bs []*Board) {
		all, ended := make([]byte, 3), make(chan error, 1)
		for _, i := range []int{1, 0, 2} {
			dst, done := make([]byte, 3), func(*Op, error) {}
			if i == 1 {
				dst, done = all, func(_ *Op, err error) { ended <- err }
			}
			es[i].Do(func(op *Op) {
				if err := op.Show(bs[i], 1, []byte{byte(i)}, dst, done); err != nil {
					t.Error(err)
				}
			})
			if i == 0 { // the last one has shown nothing yet, so nobody has looked
				es[1].Fail(0, errors.New("it has gone"))
			}
		}
		for len(ended) == 0 {
			es[1].Poll()
		}
		if err := <-ended; err != nil || !bytes.Equal(all, []byte{0, 1, 2}) {
			t.Errorf("it sees %x, %v", all, err)
		}
		if _, err := show(es[1], bs[1], 2, []byte{1}); !errors.As(err, new(ErrProcFailed)) {
			t.Errorf("then: got %v, want that a process has failed", err)
		}
	})
}

// TestBoardPlaces: there are so many places, and then none.
func TestBoardPlaces(t *testing.T) {
	e := newWorld(t, 1)[0]
	for i := range boardSlots {
		if got := e.ReserveBoard(); got != i {
			t.Fatalf("place %d: got %d", i, got)
		}
	}
	if got := e.ReserveBoard(); got != -1 {
		t.Errorf("another place: %d", got)
	}
	if b := e.OpenBoard(world, []Proc{0}, []int{boardSlots}); b != nil {
		t.Error("a board is opened at a place that is none")
	}
}

// TestNoBoard: processes that cannot see each other's page, or would read it otherwise
// than it was written, have no board.
func TestNoBoard(t *testing.T) {
	for _, k := range kinds {
		for _, swapped := range []bool{false, true} {
			if !swapped && (k.name == "hub" || k.name == "shared") {
				continue
			}
			t.Run(fmt.Sprint(k.name, swapped), func(t *testing.T) {
				es := k.make(t, 2, func(c *Config) {
					if swapped && c.Self == 1 {
						c.Arch = NativeArch().OtherOrder()
					}
				})
				send(t, es[0], 1, 1, nil)
				recv(t, es[1], 0, 1, 0)
				for i, e := range es {
					if e.OpenBoard(world, []Proc{0, 1}, []int{0, 0}) != nil {
						t.Errorf("%d has a board", i)
					}
				}
			})
		}
	}
}
