package mpishim

import (
	"errors"
	"testing"
)

// TestEndedTwice: a node that has a process end again and again does not fill our
// memory with what it says of that.
func TestEndedTwice(t *testing.T) {
	n := &goNode{}
	j := &goJob{mailbox: &mailbox{labels: map[int]*goProc{}, wake: make(chan struct{}, 1)}}
	j.labels[3] = &goProc{id: 3, node: n}
	t1 := &talk{under: map[uint32]int{}, more: make(chan struct{}, 1)}
	exit := frame{frameExit, 3, []byte(`{"code":0}`)}
	if err := j.frame(n, exit, t1); err != nil {
		t.Fatal(err)
	}
	if err := j.frame(n, exit, t1); !errors.Is(err, errFrame) {
		t.Errorf("a second end: %v", err)
	}
	if err := j.frame(&goNode{}, exit, t1); !errors.Is(err, errFrame) {
		t.Errorf("another node's process: %v", err)
	}
	if list, _ := t1.take(); len(list) != 1 || list[0].data != nil {
		t.Errorf("%+v is kept", list)
	}
}
