package tensor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// numbered returns a matrix with element (i, j) = 100·i + j.
func numbered(rows, cols int) tensor.Dense {
	d := tensor.New(rows, cols)
	for i := range rows {
		for j := range cols {
			d.Set(i, j, float32(100*i+j))
		}
	}
	return d
}

func TestNew(t *testing.T) {
	d := tensor.New(2, 3)
	if d.Rows != 2 || d.Cols != 3 || d.Stride != 3 || !slices.Equal(d.Data, make([]float32, 6)) {
		t.Errorf("New(2, 3): got %+v", d)
	}
}

func TestOf(t *testing.T) {
	data := []float32{1, 2, 3, 4, 5, 6}
	d := tensor.Of(2, 3, data)
	if d.At(0, 2) != 3 || d.At(1, 0) != 4 {
		t.Errorf("Of is not row-major: %+v", d)
	}
	data[5] = -1
	if d.At(1, 2) != -1 {
		t.Error("Of copied its data")
	}
}

func TestPanics(t *testing.T) {
	d := numbered(3, 4)
	for _, tc := range []struct {
		name string
		call func()
		want string
	}{
		{"of/short", func() { tensor.Of(2, 3, make([]float32, 5)) }, "got 5 elements, want those of a 2×3 matrix"},
		{"of/long", func() { tensor.Of(2, 3, make([]float32, 7)) }, "got 7 elements, want those of a 2×3 matrix"},
		{"of/negative", func() { tensor.Of(-2, -3, make([]float32, 6)) }, "-2×-3"},
		{"view/row-below", func() { d.View(-1, 2, 0, 4) }, "view of rows -1:2 and columns 0:4: out of range of a 3×4 matrix"},
		{"view/row-above", func() { d.View(0, 4, 0, 4) }, "out of range"},
		{"view/row-order", func() { d.View(2, 1, 0, 4) }, "out of range"},
		{"view/col-below", func() { d.View(0, 3, -1, 4) }, "out of range"},
		{"view/col-above", func() { d.View(0, 3, 0, 5) }, "out of range"},
		{"view/col-order", func() { d.View(0, 3, 3, 2) }, "out of range"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tc.want) {
					t.Errorf("got panic %q, want one with %q", got, tc.want)
				}
			}()
			tc.call()
		})
	}
}

// TestView checks every view of a small matrix, and every view of a view.
func TestView(t *testing.T) {
	const rows, cols = 4, 5
	d := numbered(rows, cols)
	check := func(v tensor.Dense, r0, r1, c0, c1 int) {
		if v.Rows != r1-r0 || v.Cols != c1-c0 {
			t.Fatalf("view %d:%d, %d:%d: got %d×%d", r0, r1, c0, c1, v.Rows, v.Cols)
		}
		for i := range v.Rows {
			if row := v.Row(i); len(row) != v.Cols || cap(row) != v.Cols {
				t.Fatalf("row %d of view %d:%d, %d:%d: got length %d and capacity %d", i, r0, r1, c0, c1, len(row), cap(row))
			}
			for j := range v.Cols {
				if got, want := v.At(i, j), float32(100*(r0+i)+c0+j); got != want {
					t.Fatalf("element (%d, %d) of view %d:%d, %d:%d: got %v, want %v", i, j, r0, r1, c0, c1, got, want)
				}
			}
		}
	}
	ranges := func(n int, visit func(from, to int)) {
		for from := range n + 1 {
			for to := from; to <= n; to++ {
				visit(from, to)
			}
		}
	}
	ranges(rows, func(r0, r1 int) {
		ranges(cols, func(c0, c1 int) {
			v := d.View(r0, r1, c0, c1)
			check(v, r0, r1, c0, c1)
			ranges(v.Rows, func(s0, s1 int) {
				ranges(v.Cols, func(e0, e1 int) {
					check(v.View(s0, s1, e0, e1), r0+s0, r0+s1, c0+e0, c0+e1)
				})
			})
		})
	})
}

// TestViewShares checks that a write through a view changes only that element of the matrix.
func TestViewShares(t *testing.T) {
	d := numbered(4, 5)
	d.View(1, 3, 2, 4).Set(1, 0, -1)
	for i := range 4 {
		for j := range 5 {
			want := float32(100*i + j)
			if i == 2 && j == 2 {
				want = -1
			}
			if d.At(i, j) != want {
				t.Errorf("element (%d, %d): got %v, want %v", i, j, d.At(i, j), want)
			}
		}
	}
}

// TestTranspose checks shapes around the tile size, and views.
func TestTranspose(t *testing.T) {
	sizes := []int{0, 1, 2, 31, 32, 33, 64, 70}
	for _, rows := range sizes {
		for _, cols := range sizes {
			views := map[string]tensor.Dense{"whole": numbered(rows, cols)}
			views["view"] = numbered(rows+2, cols+3).View(1, rows+1, 2, cols+2)
			for name, d := range views {
				tr := d.Transpose()
				if tr.Rows != cols || tr.Cols != rows || tr.Stride != rows {
					t.Fatalf("transpose of %s %d×%d: got %d×%d with stride %d", name, rows, cols, tr.Rows, tr.Cols, tr.Stride)
				}
				for i := range rows {
					for j := range cols {
						if tr.At(j, i) != d.At(i, j) {
							t.Fatalf("%s %d×%d: element (%d, %d): got %v, want %v", name, rows, cols, j, i, tr.At(j, i), d.At(i, j))
						}
					}
				}
			}
		}
	}
}

func TestClone(t *testing.T) {
	d := numbered(4, 5)
	v := d.View(1, 3, 1, 4)
	c := v.Clone()
	if c.Rows != 2 || c.Cols != 3 || c.Stride != 3 || !slices.Equal(c.Data, []float32{101, 102, 103, 201, 202, 203}) {
		t.Errorf("clone of a view: got %+v", c)
	}
	c.Set(0, 0, -1)
	if v.At(0, 0) != 101 {
		t.Error("the clone shares its data")
	}
}
