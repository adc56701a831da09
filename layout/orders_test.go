package layout

import (
	"bytes"
	"fmt"
	"testing"
)

// TestPackedWords compares Packed with DeepGEMM's definition: int32 words of four blocks, the
// first in the low byte, at [block/4][row] with rows padded to 16 bytes.
func TestPackedWords(t *testing.T) {
	for _, shape := range shapes {
		rows, blocks := shape[0], shape[1]
		src := noise(rows * blocks)
		var want []byte
		for c := 0; c < blocks; c += 4 {
			for r := range (rows + 3) / 4 * 4 {
				word := uint32(0)
				for k := range 4 {
					word |= uint32(at(src, r, c+k, rows, blocks)) << (8 * k)
				}
				want = append(want, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
			}
		}
		got := make([]byte, packed.Size(rows, blocks))
		Reorder(got, packed, src, RowMajor, rows, blocks)
		if !bytes.Equal(got, want) {
			t.Errorf("%d×%d: words differ from DeepGEMM's", rows, blocks)
		}
	}
}

// TestShuffledView compares Shuffled with AITER's definition as a permuted view of the padded
// matrix: view(R/32, 2, 16, C/8, 2, 4).permute(0, 3, 5, 2, 4, 1).
func TestShuffledView(t *testing.T) {
	for _, shape := range shapes {
		rows, blocks := shape[0], shape[1]
		src := noise(rows * blocks)
		paddedRows, paddedBlocks := roundUp(rows, 256), roundUp(blocks, 8)
		var want []byte
		for a := range paddedRows / 32 {
			for d := range paddedBlocks / 8 {
				for f := range 4 {
					for c := range 16 {
						for e := range 2 {
							for b := range 2 {
								want = append(want, at(src, a*32+b*16+c, d*8+e*4+f, rows, blocks))
							}
						}
					}
				}
			}
		}
		got := make([]byte, shuffled.Size(rows, blocks))
		Reorder(got, shuffled, src, RowMajor, rows, blocks)
		if !bytes.Equal(got, want) {
			t.Errorf("%d×%d: bytes differ from the permuted view", rows, blocks)
		}
	}
}

// TestKnownOffsets checks offsets that were worked out by hand from the libraries' formulas.
func TestKnownOffsets(t *testing.T) {
	for _, tc := range []struct {
		order                          Order
		row, block, rows, blocks, want int
	}{
		{packed, 0, 3, 5, 8, 3}, {packed, 1, 0, 5, 8, 4}, {packed, 4, 5, 5, 8, 49}, // 8 padded rows
		{shuffled, 16, 0, 256, 8, 1}, {shuffled, 0, 4, 256, 8, 2}, {shuffled, 1, 0, 256, 8, 4}, {shuffled, 0, 1, 256, 8, 64},
		{shuffled, 32, 0, 256, 8, 256}, {shuffled, 0, 8, 256, 16, 256},
		{AlignedColumns, 0, 1, 5, 3, 8}, {AlignedColumns, 4, 2, 5, 3, 20},
		{alignedRows, 1, 0, 5, 3, 4}, {alignedRows, 2, 2, 5, 6, 18},
	} {
		if got := tc.order.Offset(tc.row, tc.block, tc.rows, tc.blocks); got != tc.want {
			t.Errorf("%s (%d, %d) of %d×%d: got %d, want %d", tc.order, tc.row, tc.block, tc.rows, tc.blocks, got, tc.want)
		}
	}
}

// TestReorderWords moves words of four bytes like bytes.
func TestReorderWords(t *testing.T) {
	for _, shape := range shapes {
		rows, blocks := shape[0], shape[1]
		src := noise(rows * blocks)
		wide := make([]byte, 0, 4*len(src))
		for _, b := range src {
			wide = append(wide, b, ^b, b+1, b+2)
		}
		for _, o := range Orders() {
			narrow := make([]byte, o.Size(rows, blocks))
			Reorder(narrow, o, src, RowMajor, rows, blocks)
			got := make([]byte, 4*len(narrow))
			Reorder(got, o, wide, RowMajor, rows, blocks)
			for i, b := range narrow {
				want := []byte{b, ^b, b + 1, b + 2}
				if b == 0 { // padding
					want = []byte{0, 0, 0, 0}
				}
				if !bytes.Equal(got[4*i:][:4], want) {
					t.Fatalf("%s %d×%d: word %d is %x, want %x", o, rows, blocks, i, got[4*i:][:4], want)
				}
			}
		}
	}
}

// FuzzReorder converts arbitrary scales to every order and back.
func FuzzReorder(f *testing.F) {
	f.Add(uint16(3), uint16(5), []byte{1, 2, 3})
	f.Add(uint16(257), uint16(9), []byte{0xff})
	f.Fuzz(func(t *testing.T, rows, blocks uint16, fill []byte) {
		r, b := int(rows%600), int(blocks%40)
		src := make([]byte, r*b)
		for i := range src {
			if len(fill) > 0 {
				src[i] = fill[i%len(fill)] + byte(i/len(fill))
			}
		}
		for _, o := range Orders() {
			dst := make([]byte, o.Size(r, b))
			Reorder(dst, o, src, RowMajor, r, b)
			back := make([]byte, len(src))
			Reorder(back, RowMajor, dst, o, r, b)
			if !bytes.Equal(back, src) {
				t.Errorf("%s %d×%d: the round trip differs", o, r, b)
			}
		}
	})
}

// TestSmallShapes checks that every order is a bijection on its padded shape, for all shapes up
// to a tile and a half in each dimension.
func TestSmallShapes(t *testing.T) {
	for _, o := range Orders() {
		maxRows, maxBlocks := 2*orders[o].tileRows, 3*orders[o].tileBlocks
		step := 1
		if testing.Short() && maxRows > 100 {
			step = 37
		}
		for rows := 1; rows <= maxRows; rows += step {
			for blocks := 1; blocks <= maxBlocks; blocks++ {
				if err := bijective(o, rows, blocks); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func bijective(o Order, rows, blocks int) error {
	paddedRows, paddedBlocks := o.Padded(rows, blocks)
	taken := make([]bool, o.Size(rows, blocks))
	for i := range paddedRows {
		for j := range paddedBlocks {
			at := o.Offset(i, j, rows, blocks)
			if at < 0 || at >= len(taken) || taken[at] {
				return fmt.Errorf("%s %d×%d: offset %d of (%d, %d) is out of range or taken", o, rows, blocks, at, i, j)
			}
			taken[at] = true
		}
	}
	return nil
}

// TestTransformerEngineRule builds the swizzle as Transformer Engine's documentation describes
// it: 128×4 blocks are stored one after another, and in each the 128 words of four bytes are in
// the order 0, 32, 64, 96, 1, 33, 65, 97, …, 31, 63, 95, 127.
func TestTransformerEngineRule(t *testing.T) {
	const rows, blocks = 256, 12
	src := noise(rows * blocks)
	var want []byte
	for r := 0; r < rows; r += 128 {
		for c := 0; c < blocks; c += 4 {
			for k := range 32 {
				for _, word := range []int{k, 32 + k, 64 + k, 96 + k} {
					want = append(want, src[(r+word)*blocks+c:][:4]...)
				}
			}
		}
	}
	got := make([]byte, len(want))
	Reorder(got, Swizzled, src, RowMajor, rows, blocks)
	if !bytes.Equal(got, want) {
		t.Error("Reorder differs from Transformer Engine's rule")
	}
}
