package gemm

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// formats are all formats that kernels multiply.
var formats = append(quant.Formats(), quant.Q8_0)

// twin returns the portable kernel that computes the same bits as k, or nil.
func twin(k *kernel) *kernel {
	for _, t := range kernels {
		if t.isTwin() && t != k && t.panel == k.panel && t.Lanes == k.Lanes && t.block == k.block && t.pow2 == k.pow2 && t.wide == k.wide &&
			(t.macro == nil) == (k.macro == nil) {
			return t
		}
	}
	return nil
}

// randomPanel fills a panel with scales and elements of the kernel's type. edges is the share
// of extreme values.
func randomPanel(r *rand.Rand, panel []byte, k *kernel, chunks, steps int, isA bool, edges float64) {
	lanes := (&side{kernel: k, isA: isA}).width()
	rows := len(panel) / 4 / lanes / chunks
	exponent := func() int { return minExponent + r.IntN(maxExponent-minExponent+1) - format.E8M0.Bias }
	for i := range len(panel) / 4 {
		var word uint32
		switch row := i / lanes % rows; {
		case row < steps && k.panel == panelBF16:
			word = uint32(randomBF16(r, edges)) | uint32(randomBF16(r, edges))<<16
		case row < steps && k.panel == panelInt8:
			word = r.Uint32()
		case row == steps && k.pow2 && isA:
			word = math.Float32bits(int8Offset * float32(math.Ldexp(1, exponent())))
		case row == steps && k.pow2 && k.wide:
			word = math.Float32bits(float32(math.Ldexp(1, exponent())))
		case row == steps && k.pow2:
			word = math.Float32bits(float32(exponent()))
		case row == steps:
			word = math.Float32bits(float32(math.Ldexp(1+r.Float64(), r.IntN(40)-20)))
		case row == steps+1:
			word = uint32(int32(r.IntN(1<<20) - 1<<19))
			if k.pow2 { // plus the word of the scale
				word += binary.LittleEndian.Uint32(panel[4*(i-lanes):])
			}
		}
		binary.LittleEndian.PutUint32(panel[4*i:], word)
	}
}

// randomBF16 returns the bits of a normal value of moderate size or, with probability edges,
// of any value, a subnormal, or one whose products are close to the smallest normal float32.
func randomBF16(r *rand.Rand, edges float64) uint16 {
	sign, mantissa := uint16(r.IntN(2))<<15, uint16(r.IntN(128))
	if r.Float64() >= edges {
		return sign | uint16(117+r.IntN(20))<<7 | mantissa
	}
	switch r.IntN(4) {
	case 0:
		return uint16(r.Uint32())
	case 1:
		return sign | mantissa
	case 2:
		return sign
	}
	return sign | uint16(60+r.IntN(8))<<7 | mantissa
}

// TestTwins checks that kernels give the bits of their portable twins. Panels and tiles end,
// or begin, at inaccessible pages.
func TestTwins(t *testing.T) {
	compared := 0
	for _, k := range kernels {
		plain := twin(k)
		if plain == nil || k.vector != nil || k.macro != nil || k.isTwin() || !cpu.Has(k.needs) {
			continue
		}
		compared++
		for trial := range 60 {
			r := rand.New(rand.NewPCG(uint64(trial), 1))
			chunks, steps := 1+r.IntN(3), 1+r.IntN(9)
			if k.panel == panelInt8 {
				steps = k.block / 4
			} else if k.wide {
				steps *= 2
			}
			edges := []float64{0, 0.1, 1}[trial%3]
			panels := 1 + trial%(k.NR/k.Lanes)
			rowsA, rowsB := steps+1, steps+1
			if k.panel == panelInt8 {
				rowsA++
			}
			end := guard.Side(trial / 3 % 2)
			lanes := (&side{kernel: k, isA: true}).width()
			panelBytes := chunks * rowsB * k.Lanes * 4
			a := guard.Bytes(t, chunks*rowsA*lanes*4, end)
			b := guard.Bytes(t, panels*panelBytes, end)
			randomPanel(r, a, k, chunks, steps, true, edges)
			for j := range panels {
				randomPanel(r, b[j*panelBytes:(j+1)*panelBytes], k, chunks, steps, false, edges)
			}
			ldc := panels*k.Lanes + trial%2*3
			size := (k.MR-1)*ldc + panels*k.Lanes
			c := unsafe.Slice((*float32)(unsafe.Pointer(&guard.Bytes(t, 4*size, end)[0])), size)
			accumulate := trial/6%2 == 1
			for i := range c {
				c[i] = float32(r.NormFloat64())
				if !accumulate {
					c[i] = float32(math.NaN())
				}
			}
			want := append([]float32(nil), c...)
			alpha := float32(r.NormFloat64())
			first := r.IntN(lanes/k.MR) * k.MR * 4 // of A's lanes
			k.dot[panels-1](chunks, steps, unsafe.Pointer(&a[first]), unsafe.Pointer(&b[0]), panelBytes, &c[0], ldc, alpha, accumulate)
			for i := 0; i < k.MR; i += plain.MR {
				for j := range panels {
					plain.dot[0](chunks, steps, unsafe.Pointer(&a[first+4*i]), unsafe.Pointer(&b[j*panelBytes]), 0, &want[i*ldc+j*k.Lanes], ldc, alpha,
						accumulate)
				}
			}
			for i := range c {
				if math.Float32bits(c[i]) != math.Float32bits(want[i]) && !(c[i] != c[i] && want[i] != want[i]) {
					t.Fatalf("kernel=%s chunks=%d steps=%d panels=%d edges=%g accumulate=%v: C[%d]: got %x (%g), want %x (%g)",
						k.Name, chunks, steps, panels, edges, accumulate, i, math.Float32bits(c[i]), c[i], math.Float32bits(want[i]), want[i])
				}
			}
		}
	}
	if compared == 0 && (cpu.Has(cpu.AVX512VNNI.Set()) || cpu.Has(cpu.ARMBF16) || cpu.Has(cpu.ARMI8MM)) {
		t.Error("got no kernel with a twin")
	}
}

// TestPack checks that packing in assembly gives the bytes of packGeneric, for every panel of
// operands with tails in both directions, from and to guarded memory. What fastPack returns must pack
// some panel, and for standard blocks it must return something.
func TestPack(t *testing.T) {
	cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
		wanted, packed := map[string]bool{}, map[string]bool{} // pairs of kernel and format
		for i, f := range formats {
			for trial, shape := range [][2]int{{16, 1024}, {48, 160}, {7, 96}, {35, 1060}, {33, 352}, {17, 608}} {
				if (i+trial)%slow.Stride(1, 3) > 0 {
					continue
				}
				r := rand.New(rand.NewPCG(uint64(i), uint64(trial)))
				x := operand(t, r, f, quant.Rowwise, shape[0], shape[1])
				for i := range x.Codes {
					if f.Element.Bits() <= 8 && trial < 2 && r.IntN(3) == 0 {
						x.Codes[i] = byte(r.Uint32())
						if f.Element.HasNaN() && trial == 0 {
							x.Codes[i] &= 0xbb // no NaN, which the assembly does not support
						}
					}
				}
				if trial == 0 && f.Scale == format.E8M0 { // no block is zero any more
					for i, code := range x.Scales {
						x.Scales[i] = max(code, minExponent)
					}
				}
				if f.Scaled() && len(x.Scales) > 3 && trial == 1 {
					x.Scales[3] = 0xff // a NaN or a negative scale
				}
				end := guard.Side(trial % 2)
				x.Codes = guard.Copy(t, x.Codes, end)
				if len(x.Scales) > 0 {
					x.Scales = guard.Copy(t, x.Scales, end)
				}
				chunked := operand(t, r, quant.FP8Block, quant.Rowwise, shape[0], shape[1])
				for _, k := range kernels {
					if k.needs == 0 != (tier == cpu.Plain) || !cpu.Uses(k.needs) || k.vector != nil {
						continue
					}
					p, why := k.plan(x, x, rowMajor, Options{})
					if why != "" {
						continue
					}
					sides := []*side{&p.a, &p.b}
					if p, why := k.plan(x, chunked, rowMajor, Options{}); why == "" && k.panel == panelBF16 {
						sides = append(sides, &p.a)
					}
					if p, why := k.plan(chunked, x, rowMajor, Options{}); why == "" && k.panel == panelBF16 {
						sides = append(sides, &p.b)
					}
					var w scratch
					w.reserve(k, k.KC)
					pair := k.Name + " " + f.Name
					for _, s := range sides {
						if tier > cpu.Plain && (s.fast != nil || standardBlocks(f)) {
							wanted[pair] = true
						}
						for k0 := 0; k0 < p.k; k0 += k.KC {
							kc := min(k.KC, p.k-k0)
							for l0 := 0; l0 < x.StoredRows(); l0 += k.Lanes {
								n := s.panelBytes(kc)
								got, want := guard.Bytes(t, n, end), make([]byte, n)
								s.packGeneric(want, l0, k0, kc, &w)
								if s.fast == nil || !s.fast(s, got, l0, k0, kc, &w) {
									if f.Element == format.INT8 && trial == 0 && k.panel == panelBF16 && !k.isTwin() {
										t.Errorf("kernel=%s format=%s: random codes, the lowest among them, are not packed in assembly", k.Name, f)
									}
									continue
								}
								packed[pair] = true
								if string(got) != string(want) {
									t.Fatalf("kernel=%s format=%s a=%v: panel at row %d, positions %d+%d: differs from packGeneric", k.Name, f, s.isA, l0, k0, kc)
								}
							}
						}
					}
				}
			}
		}
		for _, pair := range slices.Sorted(maps.Keys(wanted)) {
			if !packed[pair] {
				t.Errorf("%s: no panel was packed in assembly", pair)
			}
		}
	})
}

// standardBlocks reports whether blocks have a length that assembly packs in every panel: those of the
// standards. A format with other blocks may be packed by packGeneric.
func standardBlocks(f quant.Format) bool {
	block, ok := map[*format.Scalar]int{format.E8M0: 32, format.E4M3: 16, format.F32: 32, nil: 1}[f.Scale]
	return ok && f.Block.Cols%block == 0
}

// TestRare checks the products of operands that a fast kernel does not support: extreme
// scales, NaN scales and NaN elements.
func TestRare(t *testing.T) {
	const m, n, k = 18, 50, 192
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for i, f := range formats {
			if !f.Scaled() || i%slow.Stride(1, 3) > 0 {
				continue
			}
			for name, change := range map[string]func(*quant.Tensor){
				"nan element": func(x *quant.Tensor) { x.Codes[5] = 0x7f },
				"nan scale": func(x *quant.Tensor) {
					if x.Scales32 != nil {
						x.Scales32[0] = float32(math.NaN())
					} else {
						x.Scales[0] = 0xff
					}
				},
				"least scale": func(x *quant.Tensor) {
					if x.Scales32 != nil {
						x.Scales32[0] = 0x1p-149
					} else {
						x.Scales[0] = 0
					}
				},
				"large scale": func(x *quant.Tensor) {
					if x.Scales32 != nil {
						x.Scales32[0] = 0x1p100
					} else {
						x.Scales[0] = map[bool]byte{true: 0x7e, false: 127 + 90}[f.Global]
					}
				},
				"negative scale": func(x *quant.Tensor) {
					if x.Scales32 != nil {
						x.Scales32[0] *= -1
					} else if f.Global {
						x.Scales[0] |= 0x80
					}
				},
				"global": func(x *quant.Tensor) {
					if f.Global {
						x.Global = 0x1p-60
					}
				},
			} {
				r := rand.New(rand.NewPCG(1, 2))
				a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
				change(a)
				t.Run(fmt.Sprintf("format=%s/%s", f, name), func(t *testing.T) { compare(t, a, b, Options{Threads: 1}) })
			}
		}
	})
}

// TestExact checks that int8 kernels are exact within a block: with one block, scales of one
// and small sums, the product is that of the integers.
func TestExact(t *testing.T) {
	const m, n = 30, 60
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range []quant.Format{quant.MXFP4, quant.MXFP6E2M3, quant.MXINT8, quant.NVFP4} {
			r := rand.New(rand.NewPCG(2, 3))
			k := f.Block.Cols
			a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
			for _, x := range []*quant.Tensor{a, b} {
				for i := range x.Codes {
					x.Codes[i] = byte(r.Uint32())
				}
				for i := range x.Scales {
					x.Scales[i] = byte(f.Scale.Encode(1))
				}
				x.Global = 1
			}
			want, _, err := Reference(a, b)
			if err != nil {
				t.Fatal(err)
			}
			c, check := framed(t, m, n)
			if err := Mul(c, a, b, Options{}); err != nil {
				t.Fatal(err)
			}
			check()
			for i := range m {
				for j := range n {
					if got := c.At(i, j); float64(got) != want[i*n+j] {
						t.Fatalf("format=%s at (%d,%d): got %g, want %g exactly", f, i, j, got, want[i*n+j])
					}
				}
			}
		}
	})
}

// TestChoice checks the chosen kernel for pairs of formats.
func TestChoice(t *testing.T) {
	best := map[cpu.Tier]map[string]string{
		cpu.AMX:     {"f32": "f32-avx512", "": "bf16-amx"},
		cpu.AVX512F: {"": "f32-avx512"},
		cpu.AVXVNNI: {"": "f32-avx2"},
		cpu.AVX2:    {"": "f32-avx2"},
		cpu.NEONI8MM: {"f32": "f32-neon", "mxfp4": "int8-mx-neoni8mm", "mxint8": "int8-mx-neoni8mm", "mxfp6-e2m3": "int8-mx-neoni8mm",
			"nvfp4": "int8-nv-neoni8mm", "nvfp4-16x16": "int8-nv-neoni8mm", "": "bf16-neon"},
		cpu.NEONBF16: {"f32": "f32-neon", "": "bf16-neon"},
		cpu.NEONDot:  {"": "f32-neon"},
		cpu.NEON:     {"": "f32-neon"},
		cpu.Plain:    {"": "f32-reference"},
	}
	for tier, name := range map[cpu.Tier]string{cpu.AVX512F: "avx2", cpu.AVXVNNI: "avxvnni", cpu.AVX2: "avx2", cpu.NEONDot: "neondot",
		cpu.NEONBF16: "neondot"} {
		for _, f := range []string{"mxfp4", "mxint8", "nvfp4"} {
			best[tier][f] = "vector-int8-" + f + "-interleaved-" + name
		}
	}
	integers := map[string]string{"mxfp4": "int8-mx-avx512", "mxint8": "int8-mx-avx512", "nvfp4": "int8-nv-avx512",
		"nvfp4-16x16": "int8-nv-avx512", "": "f32-avx512"}
	best[cpu.AVX512VNNI] = maps.Clone(integers)
	integers["mxfp6-e2m3"] = "int8-mx-avx512" // packed by byte permutes
	best[cpu.AVX512VBMI] = maps.Clone(integers)
	integers["f32"], integers[""] = "f32-avx512", "bf16-avx512"
	best[cpu.AVX512] = integers
	cputest.All(t, func(t *testing.T, tier cpu.Tier) {
		for _, f := range formats {
			want, ok := best[tier][f.Name]
			if !ok {
				want = best[tier][""]
			}
			x := operand(t, rand.New(rand.NewPCG(1, 1)), f, quant.Rowwise, 96, 64)
			p, err := newPlan(x, x, rowMajor, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if want == "bf16-avx512" && slowBF16(cpu.This()) {
				want = "f32-avx512"
			}
			if p.kernel.Name != want {
				t.Errorf("format=%s: got kernel %s, want %s", f, p.kernel.Name, want)
			}
		}
	})
}

// TestChoiceRows checks the row limits of vector kernels, with tile kernels and for operands
// that tile kernels do not support.
func TestChoiceRows(t *testing.T) {
	cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
		if tier != cpu.AMX {
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		for _, tc := range []struct {
			a, b quant.Format
			m    int
			want string
		}{
			{quant.BF16, quant.MXFP8, 8, "vector-fp8-avx512"}, {quant.BF16, quant.MXFP8, 9, "bf16-amx"},
			{quant.F32, quant.MXFP8, 16, "vector-f32-fp8-avx512"}, {quant.F32, quant.MXFP8, 17, "f32-avx512"},
			{quant.NVFP4, quant.NVFP4, 12, "vector-int8-nvfp4-avx512"}, {quant.NVFP4, quant.NVFP4, 13, "bf16-amx"},
			{quant.MXFP4, quant.MXFP4, 20, "int8-mx-avx512"}, {quant.MXFP4, quant.MXFP4, 21, "bf16-amx"},
		} {
			b := operand(t, r, tc.b, quant.Rowwise, 64, 64)
			k, err := Choose(operand(t, r, tc.a, quant.Rowwise, tc.m, 64), b, Options{})
			if err != nil || k.Name != tc.want {
				t.Errorf("%d rows of %s × %s: got kernel %s, %v, want %s", tc.m, tc.a, tc.b, k.Name, err, tc.want)
			}
		}
	})
}

// TestPlainRounds checks that the portable float32 kernels round products before the addition,
// also where the compiler may fuse the two, as on arm64: a named kernel has one result.
func TestPlainRounds(t *testing.T) {
	x := make([]float32, 8)
	y := slices.Clone(x)
	x[0], y[0] = -1, 1
	x[4], y[4] = 1+0x1p-12, 1+0x1p-12 // the product is 1 + 2⁻¹¹ + 2⁻²⁴
	var operands [2]*quant.Tensor
	for i, v := range [][]float32{x, y} {
		var err error
		if operands[i], err = (quant.Quantizer{Format: quant.F32}).Rowwise(tensor.Of(1, len(v), v), quant.With{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []*kernel{&referenceF32, &referenceVector} {
		c := tensor.New(1, 1)
		if err := Mul(c, operands[0], operands[1], Options{Kernel: k.Name}); err != nil {
			t.Fatal(err)
		}
		if c.Data[0] != 0x1p-11 {
			t.Errorf("%s: got 2^-11 + %g, want 2^-11", k.Name, c.Data[0]-0x1p-11)
		}
	}
}

// slowBF16 reports whether VDPBF16PS does no more than VFMADD231PS.
func slowBF16(p cpu.Part) bool { return p.Rate("VDPBF16PS zmm") <= p.Rate("VFMADD231PS zmm") }

// TestOrder checks that float32 panels come before BF16 panels where VDPBF16PS does no more
// than VFMADD231PS, and that order keeps all else.
func TestOrder(t *testing.T) {
	names := func(list []*kernel) (names []string) {
		for _, k := range list {
			names = append(names, k.Name)
		}
		return names
	}
	for _, p := range cpu.Parts() {
		got := names(order(kernels, p))
		want := names(kernels)
		bf16, f32 := slices.Index(want, "bf16-avx512"), slices.Index(want, "f32-avx512")
		if bf16 >= 0 && slowBF16(p) {
			want[bf16], want[f32] = want[f32], want[bf16]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got order %v, want %v", p.Name, got, want)
		}
	}
}

// TestWorkspace checks that the workspace of a product stays below 8 MB per thread, also with
// short chunks, and including the buffer of BF16 results.
func TestWorkspace(t *testing.T) {
	for _, k := range kernels {
		if k.vector != nil {
			continue // see TestVectorWorkspace
		}
		chunks := []int{k.KC}
		for _, f := range formats {
			if c := commonChunk(f); k.panel == panelBF16 && c < k.KC {
				chunks = append(chunks, c)
			}
		}
		if k.panel == panelInt8 {
			chunks = []int{k.block}
		}
		for _, chunk := range chunks {
			b, a := side{kernel: k, chunk: chunk}, side{kernel: k, chunk: chunk, isA: true}
			packed := func(columns int) int { return columns / k.Lanes * b.panelBytes(k.KC) }
			bytes := max(packed(k.NC), packed(min(k.NC, bf16NC))+bf16Rows*bf16NC*4) + ceilDiv(k.MC, k.Lanes)*a.panelBytes(k.KC) + 4*k.KC +
				k.Lanes*k.KC*4
			if k.macro != nil {
				bytes += 4 * (k.MC*k.NR + k.MR*(k.NR+1))
			}
			if bytes > 8<<20 {
				t.Errorf("%s: got %d bytes with chunks of %d", k.Name, bytes, chunk)
			}
		}
		if k.macro == nil && k.Lanes%k.MR != 0 || k.NR%k.Lanes != 0 || k.NC%k.NR != 0 || k.MC%max(k.Lanes, k.MR) != 0 ||
			len(k.dot)+len(k.macro) != k.NR/k.Lanes {
			t.Errorf("%s: block sizes are not multiples of each other", k.Name)
		}
	}
}
