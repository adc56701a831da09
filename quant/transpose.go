package quant

import "encoding/binary"

// transposeTile is the rows and columns that transposeBytes transposes at a time, in a
// scratch buffer: rows whose distance is a power of two share few cache sets, so that each is
// written whole and once.
const transposeTile = 64

// transposeBytes sets dst to the transpose of src, rows × cols elements of size
// bytes, at most 4. Strides are in bytes. With stream, whole cache lines of dst, whose rows
// begin with one, are written by non-temporal stores.
func transposeBytes(dst, src []byte, rows, cols, dstStride, srcStride, size int, stream bool) {
	kernel, ok := find(codesKernels, variant{bits: 8 * size})
	side := cacheLine / size
	down, right := rows/side*side, cols/side*side
	if !ok || right == 0 {
		down = 0
	}
	for r := 0; r < down; r += side {
		kernel(dst[r*size:], src[r*srcStride:], right/side, dstStride, srcStride, stream)
	}
	if down > 0 && right < cols {
		transposeTiles(dst[right*dstStride:], src[right*size:], down, cols-right, dstStride, srcStride, size)
	}
	if down < rows {
		transposeTiles(dst[down*size:], src[down*srcStride:], rows-down, cols, dstStride, srcStride, size)
	}
}

// transposeTiles is the plain Go twin of transposeBytes.
func transposeTiles(dst, src []byte, rows, cols, dstStride, srcStride, size int) {
	var scratch [transposeTile * transposeTile * 4]byte
	for r0 := 0; r0 < rows; r0 += transposeTile {
		n := min(transposeTile, rows-r0)
		for c0 := 0; c0 < cols; c0 += transposeTile {
			m := min(transposeTile, cols-c0)
			from := src[r0*srcStride+c0*size:]
			stride := transposeTile * size
			switch size {
			case 1:
				transpose8x8(&scratch, from, n, m, srcStride)
			case 2:
				transpose4x4(&scratch, from, n, m, srcStride)
			default:
				transposeAny(&scratch, from, 0, n, 0, m, srcStride, size)
			}
			for c := range m {
				copy(dst[(c0+c)*dstStride+r0*size:][:n*size], scratch[c*stride:])
			}
		}
	}
}

// transposeAny sets column i of the tile to row i of src for the elements of rows [r0, r1)
// and columns [c0, c1).
func transposeAny(tile *[transposeTile * transposeTile * 4]byte, src []byte, r0, r1, c0, c1, stride, size int) {
	for i := r0; i < r1; i++ {
		for j := c0; j < c1; j++ {
			copy(tile[(j*transposeTile+i)*size:][:size], src[i*stride+j*size:])
		}
	}
}

// transpose8x8 is transposeAny of n rows and m columns of single bytes, eight by eight.
func transpose8x8(tile *[transposeTile * transposeTile * 4]byte, src []byte, n, m, stride int) {
	const side = 8
	rows, cols := n/side*side, m/side*side
	for i := 0; i < rows; i += side {
		for j := 0; j < cols; j += side {
			var a [side]uint64
			for k := range a {
				a[k] = binary.LittleEndian.Uint64(src[(i+k)*stride+j:])
			}
			for k := range 4 {
				a[k], a[k+4] = exchange(a[k], a[k+4], 32, 0x00000000ffffffff)
			}
			for _, k := range [...]int{0, 1, 4, 5} {
				a[k], a[k+2] = exchange(a[k], a[k+2], 16, 0x0000ffff0000ffff)
			}
			for k := 0; k < side; k += 2 {
				a[k], a[k+1] = exchange(a[k], a[k+1], 8, 0x00ff00ff00ff00ff)
			}
			for k := range a {
				binary.LittleEndian.PutUint64(tile[(j+k)*transposeTile+i:], a[k])
			}
		}
	}
	transposeAny(tile, src, 0, rows, cols, m, stride, 1)
	transposeAny(tile, src, rows, n, 0, m, stride, 1)
}

// transpose4x4 is transposeAny of n rows and m columns of elements of two bytes, four by four.
func transpose4x4(tile *[transposeTile * transposeTile * 4]byte, src []byte, n, m, stride int) {
	const side, size = 4, 2
	rows, cols := n/side*side, m/side*side
	for i := 0; i < rows; i += side {
		for j := 0; j < cols; j += side {
			a := binary.LittleEndian.Uint64(src[i*stride+j*size:])
			b := binary.LittleEndian.Uint64(src[(i+1)*stride+j*size:])
			c := binary.LittleEndian.Uint64(src[(i+2)*stride+j*size:])
			d := binary.LittleEndian.Uint64(src[(i+3)*stride+j*size:])
			a, c = exchange(a, c, 32, 0x00000000ffffffff)
			b, d = exchange(b, d, 32, 0x00000000ffffffff)
			a, b = exchange(a, b, 16, 0x0000ffff0000ffff)
			c, d = exchange(c, d, 16, 0x0000ffff0000ffff)
			binary.LittleEndian.PutUint64(tile[(j*transposeTile+i)*size:], a)
			binary.LittleEndian.PutUint64(tile[((j+1)*transposeTile+i)*size:], b)
			binary.LittleEndian.PutUint64(tile[((j+2)*transposeTile+i)*size:], c)
			binary.LittleEndian.PutUint64(tile[((j+3)*transposeTile+i)*size:], d)
		}
	}
	transposeAny(tile, src, 0, rows, cols, m, stride, size)
	transposeAny(tile, src, rows, n, 0, m, stride, size)
}

// exchange swaps the bits of a under mask<<shift with those of b under mask.
func exchange(a, b uint64, shift uint, mask uint64) (a1, b1 uint64) {
	t := (a>>shift ^ b) & mask
	return a ^ t<<shift, b ^ t
}
