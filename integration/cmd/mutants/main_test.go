package main

import "testing"

// TestListFits: every bug of the list can still be planted, though the files that it
// is for have changed since.
func TestListFits(t *testing.T) {
	const root = "../../../"
	list, err := read(root + "mpi/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 12 {
		t.Errorf("only %d bugs are listed", len(list))
	}
	for _, m := range list {
		if _, err := m.plant(root); err != nil {
			t.Errorf("%s: %s: %v", m.file, m.what, err)
		}
	}
}
