package layout

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// shapes are shapes around the tile size, empty ones included.
var shapes = [][2]int{
	{0, 0}, {0, 3}, {3, 0}, {1, 1}, {3, 2}, {1, 9}, {31, 4}, {32, 4}, {33, 5}, {127, 3}, {128, 4}, {128, 5}, {129, 4},
	{129, 1}, {255, 8}, {256, 8}, {257, 9}, {300, 10}, {384, 12}, {500, 17},
}

// TestSwizzledOffset checks offsets against those that the documentation and tests of hardware
// vendors' libraries list for 256×8 scales.
func TestSwizzledOffset(t *testing.T) {
	for _, tc := range []struct{ row, block, want int }{
		{0, 0, 0}, {1, 0, 16}, {31, 0, 496}, {32, 0, 4}, {5, 2, 82}, {96, 3, 15}, {127, 3, 511},
		{0, 4, 512}, {33, 5, 533}, {127, 7, 1023}, {128, 0, 1024}, {200, 6, 1674}, {200, 7, 1675},
	} {
		if got := Swizzled.Offset(tc.row, tc.block, 256, 8); got != tc.want {
			t.Errorf("(%d, %d): got %d, want %d", tc.row, tc.block, got, tc.want)
		}
		// Seven blocks are padded to the same tiles.
		if got := Swizzled.Offset(tc.row, tc.block, 201, 7); got != tc.want {
			t.Errorf("(%d, %d) of 201×7: got %d, want %d", tc.row, tc.block, got, tc.want)
		}
	}
}

// TestSwizzledTile checks the documented inverse within a tile.
func TestSwizzledTile(t *testing.T) {
	for offset := range tileBytes {
		row, block := offset%16/4*32+offset/16, offset%4
		if got := Swizzled.Offset(row, block, 128, 4); got != offset {
			t.Errorf("(%d, %d): got %d, want %d", row, block, got, offset)
		}
	}
}

// TestSwizzledView compares whole buffers with the definition as a permuted view of the padded
// matrix: [R/128, 4, 32, C/4, 4] read in the order R/128, C/4, 32, 4, 4.
func TestSwizzledView(t *testing.T) {
	for _, shape := range shapes {
		rows, cols := shape[0], shape[1]
		t.Run(fmt.Sprintf("%dx%d", rows, cols), func(t *testing.T) {
			src := noise(rows * cols)
			var want []byte
			for r := 0; r < rows; r += 128 {
				for c := 0; c < cols; c += 4 {
					for inner := range 32 {
						for group := range 4 {
							for k := range 4 {
								want = append(want, at(src, r+group*32+inner, c+k, rows, cols))
							}
						}
					}
				}
			}
			got := make([]byte, Swizzled.Size(rows, cols))
			Reorder(got, Swizzled, src, RowMajor, rows, cols)
			if !bytes.Equal(got, want) {
				t.Error("the swizzled scales differ from the permuted view")
			}
			columnwise := make([]byte, Swizzled.Size(rows, cols))
			Reorder(columnwise, Swizzled, transposed(src, rows, cols), ColumnMajor, rows, cols)
			if !bytes.Equal(columnwise, want) {
				t.Error("Reorder of the transposed scales differs from that of the scales")
			}
		})
	}
}

// at returns element (i, j) of a matrix, 0 outside of it.
func at(m []byte, i, j, rows, cols int) byte {
	if i >= rows || j >= cols {
		return 0
	}
	return m[i*cols+j]
}

func transposed(m []byte, rows, cols int) []byte {
	t := make([]byte, len(m))
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = m[i*cols+j]
		}
	}
	return t
}

// noise returns n nonzero bytes (padding is zero).
func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + random.IntN(255))
	}
	return b
}

// TestOrders checks that each order is a bijection of its padded matrix onto its bytes, with
// zeros as padding.
func TestOrders(t *testing.T) {
	for _, o := range Orders() {
		for _, shape := range shapes {
			rows, blocks := shape[0], shape[1]
			t.Run(fmt.Sprintf("order=%s/%dx%d", o, rows, blocks), func(t *testing.T) {
				taken := make([]bool, o.Size(rows, blocks))
				paddedRows, paddedBlocks := o.Padded(rows, blocks)
				for i := range paddedRows {
					for j := range paddedBlocks {
						at := o.Offset(i, j, rows, blocks)
						if at < 0 || len(taken) <= at || taken[at] {
							t.Fatalf("(%d, %d): got offset %d, which is out of range or taken", i, j, at)
						}
						taken[at] = true
					}
				}
				if paddedRows*paddedBlocks != len(taken) {
					t.Errorf("got %d offsets for %d scales and padding", len(taken), paddedRows*paddedBlocks)
				}

				src := noise(rows * blocks)
				dst := bytes.Repeat([]byte{0xaa}, len(taken))
				Reorder(dst, o, src, RowMajor, rows, blocks)
				used := 0
				for _, b := range dst {
					if b != 0 {
						used++
					}
				}
				if used != len(src) {
					t.Errorf("got %d nonzero bytes, want %d", used, len(src))
				}
			})
		}
	}
}

// TestReorder converts from any order to any other and back.
func TestReorder(t *testing.T) {
	for _, shape := range shapes {
		rows, blocks := shape[0], shape[1]
		src := noise(rows * blocks)
		for _, from := range Orders() {
			a := make([]byte, from.Size(rows, blocks))
			Reorder(a, from, src, RowMajor, rows, blocks)
			for _, to := range Orders() {
				b := make([]byte, to.Size(rows, blocks))
				Reorder(b, to, a, from, rows, blocks)
				back := make([]byte, len(a))
				Reorder(back, from, b, to, rows, blocks)
				if !bytes.Equal(back, a) {
					t.Errorf("%d×%d: round trip from %s to %s differs", rows, blocks, from, to)
				}
			}
		}
	}
}

// TestReorderBack checks that Reorder restores scales from buffers with any padding bytes.
func TestReorderBack(t *testing.T) {
	for _, shape := range shapes {
		rows, cols := shape[0], shape[1]
		src := noise(rows * cols)
		b := make([]byte, Swizzled.Size(rows, cols))
		Reorder(b, Swizzled, src, RowMajor, rows, cols)
		dirty := bytes.Repeat([]byte{0xff}, len(b))
		for i := range rows {
			for j := range cols {
				at := Swizzled.Offset(i, j, rows, cols)
				dirty[at] = b[at]
			}
		}
		for _, swizzled := range [][]byte{b, dirty} {
			got := make([]byte, len(src))
			Reorder(got, RowMajor, swizzled, Swizzled, rows, cols)
			if !bytes.Equal(got, src) {
				t.Errorf("%d×%d: round trip differs", rows, cols)
			}
		}
	}
}

// TestOrderText checks all 256 values: orders round-trip through their text, in any case; String
// does not panic for others, and they have no text.
func TestOrderText(t *testing.T) {
	want := []string{"row-major", "column-major", "compact", "compact-columnwise", "swizzled", "packed", "shuffled", "aligned-columns",
		"aligned-rows"}
	for i := range 256 {
		o := Order(i)
		text, err := o.MarshalText()
		if i >= len(want) {
			if err == nil || o.String() != fmt.Sprintf("Order(%d)", i) {
				t.Errorf("value %d: got text %q and string %q, want an error", i, text, o)
			}
			continue
		}
		if err != nil || string(text) != want[i] || o.String() != want[i] {
			t.Errorf("value %d: got text %q and string %q, %v, want %s", i, text, o, err, want[i])
		}
		for _, spelling := range append(o.Aliases(), want[i], strings.ToUpper(want[i])) {
			var back Order
			if err := back.UnmarshalText([]byte(spelling)); err != nil || back != o {
				t.Errorf("UnmarshalText of %s: got %v, %v", spelling, back, err)
			}
		}
	}
	if len(Orders()) != len(want) {
		t.Errorf("got %d orders, want %d", len(Orders()), len(want))
	}
	o := compact
	if err := o.UnmarshalText([]byte("tiled")); err == nil || o != compact || !strings.Contains(err.Error(),
		`unknown order "tiled": use one of row-major, `) {
		t.Errorf("unknown name: got %v, %v", o, err)
	}
	defer func() {
		if got := fmt.Sprint(recover()); got != "layout: unknown order: got 9, want less than 9" {
			t.Errorf("Size of an unknown order: got panic %q", got)
		}
	}()
	Order(9).Size(1, 1)
}

// TestReorderPadded checks that swizzling a padded compact buffer, as Transformer Engine does,
// gives the bytes of swizzling the unpadded scales.
func TestReorderPadded(t *testing.T) {
	const rows, blocks = 300, 10
	src := noise(rows * blocks)
	want := make([]byte, Swizzled.Size(rows, blocks))
	Reorder(want, Swizzled, src, RowMajor, rows, blocks)
	for _, tc := range []struct{ padded, plain Order }{{compact, RowMajor}, {compactColumnwise, ColumnMajor}} {
		compact := make([]byte, tc.padded.Size(rows, blocks))
		Reorder(compact, tc.padded, src, RowMajor, rows, blocks)
		got := make([]byte, len(want))
		Reorder(got, Swizzled, compact, tc.plain, 384, 12)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: swizzled bytes differ", tc.padded)
		}
	}
}

func TestReorderPanics(t *testing.T) {
	for _, tc := range []struct {
		name         string
		dst, src     int
		rows, blocks int
	}{
		{"short-dst", 511, 12, 3, 4},
		{"long-dst", 513, 12, 3, 4},
		{"short-src", 512, 11, 3, 4},
		{"long-src", 512, 13, 3, 4},
		{"negative", 0, 12, -3, -4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			Reorder(make([]byte, tc.dst), Swizzled, make([]byte, tc.src), RowMajor, tc.rows, tc.blocks)
		})
	}
}
