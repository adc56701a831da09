package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// TestWords compares codes from BF16 with the Go twins, in every tier: for scales at both ends of what kernels
// support and between them, all elements of the binades below an amax, to 0 where that is near, so that all roundings
// of normal and subnormal codes are among them.
func TestWords(t *testing.T) {
	amaxes := []float32{math.Float32frombits(1 << 16), 0x1p-127}
	for e := 1; e < 255; e += slow.Stride(1, 6) {
		if e < 40 || e%16 == 0 || e > 220 {
			amaxes = append(amaxes, exp2(e-exponentBias), exp2(e-exponentBias)*1.75)
		}
	}
	for f, binades := range map[*Format]int{&MXFP8: 21, &MXFP8E5M2: 35} {
		for _, rule := range ScaleRules() {
			q := Quantizer{Format: *f, Rule: rule}
			t.Run(fmt.Sprintf("format=%s/rule=%s", q.Format, rule), func(t *testing.T) { compareWords(t, q, amaxes, binades, With{}) })
		}
	}
}

// TestNibbles compares codes of 4 bits from BF16 with the Go twins, in every tier: for each scale, all
// elements of the 8 binades below an amax that gives it, so that each threshold of rounding and both its
// neighbors are among them. The amaxes of the tensor give many significands of the global scale, and
// scales whose products with it are not normal numbers.
func TestNibbles(t *testing.T) {
	const binades = 8
	r := rand.New(rand.NewPCG(31, 32))
	var exponents []float32 // amaxes of blocks
	for e := range 255 {
		exponents = append(exponents, exp2(e-exponentBias)*1.5, exp2(e-exponentBias)*(1+r.Float32()))
	}
	for _, rule := range ScaleRules() {
		q := Quantizer{Format: MXFP4, Rule: rule}
		t.Run(fmt.Sprintf("format=%s/rule=%s", q.Format, rule), func(t *testing.T) { compareWords(t, q, exponents, binades, With{}) })
	}
	amaxes := []float32{0, 1, 5, 2688, 0x1p-133, 1e-36, 1e-30, 0x1p100, 3e38, math.MaxFloat32}
	for range 24 / slow.Stride(1, 8) {
		amaxes = append(amaxes, exp2(r.IntN(40)-20)*(1+r.Float32()))
	}
	for _, amax := range amaxes {
		q := Quantizer{Format: NVFP4}
		decode := must(t)(q.Rowwise(tensor.New(1, 16), With{Amax: &amax})).Global
		var blocks []float32
		for code := range scaleFormat.MaxCode() + 1 {
			blocks = append(blocks, float32(scaleFormat.Decode(code)*format.E2M1.Max()*decode))
		}
		blocks = append(blocks, blocks[1]/4, 0x1p-126, 0x1p-124) // under the scale 0, subnormal elements too
		t.Run(fmt.Sprintf("format=%s/amax=%g", q.Format, amax), func(t *testing.T) { compareWords(t, q, blocks, binades, With{Amax: &amax}) })
	}
}

// compareWords quantizes a row of blocks in every tier. A block has one of the amaxes, and elements of
// the binades below it; one has zeros.
func compareWords(t *testing.T, q Quantizer, amaxes []float32, binades int, with With) {
	extent := q.Format.Block.Cols
	var raw []byte
	for _, amax := range amaxes {
		top := int(math.Float32bits(amax) >> 16)
		n := 0
		for x := top; x >= 0 && x >= top-binades<<7; x-- {
			if n%extent == 0 {
				raw, n = binary.LittleEndian.AppendUint16(raw, uint16(top)), n+1
			}
			raw, n = binary.LittleEndian.AppendUint16(raw, uint16(x|n%2<<15)), n+1
		}
		for ; n%extent != 0; n++ {
			raw = append(raw, 0, 0x80) // -0
		}
		raw = append(binary.LittleEndian.AppendUint16(raw, uint16(top)), make([]byte, 2*(extent-1))...)
	}
	x := tensor.OfBF16(1, len(raw)/2, raw)
	var want *Tensor
	plainly(t, func() { want = must(t)(q.RowwiseBF16(x, with)) })
	eachKernel(t, func(t *testing.T) { sameTensor(t, must(t)(q.RowwiseBF16(x, with)), want) })
}
