package nn

import "testing"

// TestArena checks that a matrix is valid until the second Turn, that an arena grows to what one
// half needs and then allocates nothing, and that a nil arena allocates.
func TestArena(t *testing.T) {
	var a Arena
	for range 2 { // the first passes allocate
		a.Turn()
		a.Dense(3, 5)
		a.Dense(1, 7)
	}
	a.Turn()
	kept := a.Dense(3, 5)
	for i := range kept.Data {
		kept.Data[i] = 1
	}
	other := a.Dense(1, 7)
	a.Turn()
	for _, v := range []float32{2, 3} {
		m := a.Dense(2, 3)
		for i := range m.Data {
			m.Data[i] = v
		}
	}
	for _, v := range append(kept.Data, other.Data...) {
		if v > 1 {
			t.Fatalf("got %g: a matrix was overwritten before the second Turn", v)
		}
	}
	if got := testing.AllocsPerRun(10, func() {
		a.Turn()
		a.Dense(3, 5)
		a.Dense(1, 7)
	}); got != 0 {
		t.Errorf("got %v allocations per pass, want 0", got)
	}
	if got, want := a.Bytes(), 2*4*2*arenaUnit; got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
	var none *Arena
	none.Turn()
	if m := none.Dense(2, 2); m.Rows != 2 || len(m.Data) != 4 {
		t.Error("a nil arena does not allocate")
	}
}
