package ggml

import (
	"encoding/binary"
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// Encodes reports whether Encode supports the type.
func (q Quant) Encodes() bool { return q.encode != nil }

// Encode sets dst to the blocks of a row, as ggml_quantize_chunk has them, bit for bit, of finite values. importance has the weight of
// the error of each column, as an importance matrix of llama.cpp (the mean square of the column's inputs); nil: the searches of a type
// weigh errors by the values alone. It panics if the lengths are not those of whole blocks.
func (q Quant) Encode(dst []byte, row, importance []float32) {
	blocks := len(row) / q.Elements
	if len(row) != blocks*q.Elements || len(dst) != blocks*q.Bytes || importance != nil && len(importance) != len(row) {
		panic(fmt.Sprintf("ggml: %d bytes of %s for %d values and %d weights", len(dst), q.Name, len(row), len(importance)))
	}
	b := rowBlock{mean: meanSquare(row)}
	for i := range blocks {
		b.x = row[i*q.Elements : (i+1)*q.Elements]
		if importance != nil {
			b.importance = importance[i*q.Elements : (i+1)*q.Elements]
		}
		block := dst[i*q.Bytes : (i+1)*q.Bytes]
		clear(block)
		q.encode(block, b)
	}
}

// A rowBlock is a block of a row.
type rowBlock struct {
	x, importance []float32 // importance is nil if there is none
	mean          float32   // of the squares of the row
}

// meanSquare returns the mean of the squares.
func meanSquare(x []float32) (sum float32) {
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum / float32(len(x))
}

// weigh sets w to the weights of the elements from at on: importance·√(mean + x²).
func (b rowBlock) weigh(w []float32, at int, mean float32) {
	for i := range w {
		v := b.x[at+i]
		w[i] = float32(b.importance[at+i] * sqrt(mean+float32(v*v)))
	}
}

// putHalf stores an FP16 number, and returns its value. The NaN of a search whose sums overflow is that of an x86 processor.
func putHalf(dst []byte, v float32) float32 {
	code := format.FP16.EncodeWith(v, format.Conversion{Overflow: format.NonSaturating}, 0)
	if v != v {
		code = 0xfe00
	}
	binary.LittleEndian.PutUint16(dst, uint16(code))
	return format.FP16.Decode(code)
}

// putNibbles stores 32 codes, of whose fifth bits it returns a mask.
func putNibbles(dst []byte, codes []uint8) (high uint32) {
	for i := range 16 {
		dst[i] = codes[i]&15 | codes[i+16]<<4
	}
	for i, c := range codes {
		high |= uint32(c>>4&1) << i
	}
	return high
}

// truncated returns the low byte of the integer part, 0 if that has more than 31 bits, as x86 converts.
func truncated(v float32) int8 {
	if !(abs(v) < 1<<31) {
		return 0
	}
	return int8(int32(v))
}

// inverted returns 1/d, 0 for 0.
func inverted(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// encodeSigned returns the encoder of Q4_0 and Q5_0: d·(q−limit).
func encodeSigned(limit int) func([]byte, rowBlock) {
	return func(dst []byte, b rowBlock) {
		var codes [32]uint8
		var d float32
		if b.importance != nil {
			var w [32]float32
			b.weigh(w[:], 0, b.mean)
			d = fitSigned(codes[:], b.x, w[:], limit)
		} else {
			edge, _ := extreme(b.x)
			d = edge / float32(-limit)
			inverse := inverted(d)
			for i, v := range b.x {
				codes[i] = uint8(min(int8(2*limit-1), truncated(float32(v*inverse)+float32(limit)+0.5)))
			}
		}
		putHalf(dst, d)
		high := putNibbles(dst[len(dst)-16:], codes[:])
		if limit > 8 {
			binary.LittleEndian.PutUint32(dst[2:], high)
		}
	}
}

// encodeRange returns the encoder of Q4_1 and Q5_1: d·q + m.
func encodeRange(limit int) func([]byte, rowBlock) {
	return func(dst []byte, b rowBlock) {
		var codes [32]uint8
		var d, m float32
		if b.importance != nil {
			var w [32]float32
			b.weigh(w[:], 0, b.mean)
			d, m = fitRange(codes[:], b.x, w[:], rangeSearch{limit, -0.9, 0.05, 36, false})
			m = -m
		} else {
			low, high := bounds(b.x)
			d, m = (high-low)/float32(limit), low
			inverse := inverted(d)
			for i, v := range b.x {
				c := truncated(float32((v-low)*inverse) + 0.5)
				if limit == 15 {
					c = min(15, c)
				}
				codes[i] = uint8(c)
			}
		}
		putHalf(dst, d)
		putHalf(dst[2:], m)
		high := putNibbles(dst[len(dst)-16:], codes[:])
		if limit > 15 {
			binary.LittleEndian.PutUint32(dst[4:], high)
		}
	}
}

// searchOf is fitRange with an importance matrix.
func searchOf(limit int) rangeSearch { return rangeSearch{limit, -0.9, 0.05, 36, false} }

// putTwos stores two-bit codes, which two reads.
func putTwos(qs []byte, codes []uint8) {
	for i, c := range codes {
		qs[i/128*32+i%32] |= c << (i % 128 / 32 * 2)
	}
}

// requantize sets codes to the integers of limit low … high nearest to (x + least)/d, plus offset, unless d is 0.
func requantize(codes []uint8, x []float32, d, least float32, low, high, offset int) {
	if d == 0 {
		return
	}
	for i := range codes {
		codes[i] = uint8(max(low, min(high, nearest((x[i]+least)/d))) + offset)
	}
}

// largest returns the largest value that is not NaN, 0 if none is positive.
func largest(x []float32) (top float32) {
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

func encodeQ2K(dst []byte, b rowBlock) {
	const groups, size = 16, 16
	var codes [256]uint8
	var scales, mins, sumW [groups]float32
	var w [size]float32
	mean := meanSquare(b.x)
	for g := range groups {
		x, q := b.x[g*size:][:size], codes[g*size:][:size]
		if b.importance != nil {
			b.weigh(w[:], g*size, mean)
			for _, v := range w {
				sumW[g] += v
			}
			scales[g], mins[g] = fitRange(q, x, w[:], searchOf(3))
			continue
		}
		for i, v := range x {
			w[i] = abs(v)
		}
		scales[g], mins[g] = fitRange(q, x, w[:], rangeSearch{3, -0.5, 0.1, 15, true})
	}
	var ls, lm [groups]uint8
	var d, dmin float32
	if b.importance != nil {
		d, dmin = fitPositive(ls[:], scales[:], sumW[:], 15), fitPositive(lm[:], mins[:], sumW[:], 15)
	} else {
		top, topMin := largest(scales[:]), largest(mins[:])
		for g := range groups {
			if top > 0 {
				ls[g] = uint8(nearest(float32(15 / top * scales[g])))
			}
			if topMin > 0 {
				lm[g] = uint8(nearest(float32(15 / topMin * mins[g])))
			}
		}
		d, dmin = top/15, topMin/15
	}
	d, dmin = putHalf(dst[80:], d), putHalf(dst[82:], dmin)
	for g := range groups {
		dst[g] = ls[g] | lm[g]<<4
		requantize(codes[g*size:][:size], b.x[g*size:], float32(d*float32(dst[g]&15)), float32(dmin*float32(dst[g]>>4)), 0, 3, 0)
	}
	putTwos(dst[16:80], codes[:])
}

func encodeQ3K(dst []byte, b rowBlock) {
	const groups, size = 16, 16
	var codes [256]uint8
	var scales, sumW [groups]float32
	var w [size]float32
	sum := float32(0)
	for _, v := range b.x {
		sum += float32(v * v)
	}
	for g := range groups {
		x, q := b.x[g*size:][:size], codes[g*size:][:size]
		if b.importance == nil {
			scales[g] = fitDescending(q, x, 4)
			continue
		}
		b.weigh(w[:], g*size, 2*sum/256)
		for _, v := range w {
			sumW[g] += v
		}
		scales[g] = fitSigned(q, x, w[:], 4)
	}
	var ls [groups]uint8 // plus 32
	var d float32
	if b.importance != nil {
		d = fitSigned(ls[:], scales[:], sumW[:], 32)
	} else if edge, _ := extreme(scales[:]); edge != 0 {
		inverse := -32 / edge
		for g, s := range scales {
			ls[g] = uint8(max(-32, min(31, int8(nearest(float32(inverse*s))))) + 32)
		}
		d = 1 / inverse
	}
	packed := dst[96:108]
	for g, l := range ls {
		packed[g%8] |= l & 15 << (4 * (g / 8))
		packed[8+g%4] |= l >> 4 << (2 * (g / 4))
	}
	d = putHalf(dst[108:], d)
	for g, l := range ls {
		requantize(codes[g*size:][:size], b.x[g*size:], float32(d*float32(int(l&63)-32)), 0, -4, 3, 4)
	}
	for i, c := range codes {
		if c > 3 {
			dst[i%32] |= 1 << (i / 32)
		}
		codes[i] = c & 3
	}
	putTwos(dst[32:96], codes[:])
}

// encodeGroups returns the encoder of Q4_K and Q5_K: plain is the search without importance.
func encodeGroups(plain rangeSearch) func([]byte, rowBlock) {
	const groups, size = 8, 32
	return func(dst []byte, b rowBlock) {
		var codes [256]uint8
		var scales, mins, sumW [groups]float32
		var w [size]float32
		sum := float32(0)
		for _, v := range b.x {
			sum += float32(v * v)
		}
		for g := range groups {
			x, q := b.x[g*size:][:size], codes[g*size:][:size]
			if b.importance != nil {
				b.weigh(w[:], g*size, 2*sum/256)
				for _, v := range w {
					sumW[g] += v
				}
				scales[g], mins[g] = fitRange(q, x, w[:], searchOf(plain.limit))
				continue
			}
			average := sqrt(meanSquare(x))
			for i, v := range x {
				w[i] = average + abs(v)
			}
			scales[g], mins[g] = fitRange(q, x, w[:], plain)
		}
		var ls, lm [groups]uint8
		var d, dmin float32
		if b.importance != nil {
			d, dmin = fitPositive(ls[:], scales[:], sumW[:], 63), fitPositive(lm[:], mins[:], sumW[:], 63)
		} else {
			top, topMin := largest(scales[:]), largest(mins[:])
			inverse, inverseMin := float32(0), float32(0)
			if top > 0 {
				inverse = 63 / top
			}
			if topMin > 0 {
				inverseMin = 63 / topMin
			}
			for g := range groups {
				ls[g] = min(63, uint8(nearest(float32(inverse*scales[g]))))
				lm[g] = min(63, uint8(nearest(float32(inverseMin*mins[g]))))
			}
			d, dmin = top/63, topMin/63
		}
		for g := range groups {
			putScaleMin(dst[4:16], g, ls[g], lm[g])
		}
		d, dmin = putHalf(dst, d), putHalf(dst[2:], dmin)
		qh, qs := dst[16:len(dst)-128], dst[len(dst)-128:]
		for g := range groups {
			sc, mn := scaleMin(dst[4:16], g)
			q := codes[g*size:][:size]
			requantize(q, b.x[g*size:], float32(d*sc), float32(dmin*mn), 0, plain.limit, 0)
			for i, c := range q {
				qs[g/2*32+i] |= c & 15 << (4 * (g % 2))
				if c > 15 {
					qh[i] |= 1 << g
				}
			}
		}
	}
}

// putScaleMin is the inverse of scaleMin.
func putScaleMin(s []byte, g int, sc, mn uint8) {
	if g < 4 {
		s[g], s[4+g] = sc, mn
		return
	}
	s[4+g] = sc&15 | mn<<4
	s[g-4] |= sc >> 4 << 6
	s[g] |= mn >> 4 << 6
}

func encodeQ6K(dst []byte, b rowBlock) {
	const groups, size = 16, 16
	var codes [256]uint8
	var scales [groups]float32
	for g := range groups {
		var w []float32
		if b.importance != nil {
			w = b.importance[g*size:][:size]
		}
		scales[g] = fitSigned(codes[g*size:][:size], b.x[g*size:][:size], w, 32)
	}
	edge, amax := extreme(scales[:])
	if amax < leastAmax {
		return
	}
	inverse := -128 / edge
	d := putHalf(dst[208:], 1/inverse)
	for g, s := range scales {
		sc := int8(min(127, nearest(float32(inverse*s))))
		dst[192+g] = byte(sc)
		requantize(codes[g*size:][:size], b.x[g*size:], float32(d*float32(sc)), 0, -32, 31, 32)
	}
	for i, c := range codes {
		h, j := i/128, i%128
		dst[h*64+j%64] |= c & 15 << (4 * (j / 64))
		dst[128+h*32+j%32] |= c >> 4 << (2 * (j / 32))
	}
}
