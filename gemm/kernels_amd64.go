//go:build !purego

package gemm

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// kernels is the kernel table of this build, fastest first on AMD (see order). The row limits
// of vector kernels were measured with weights in DRAM: batch and batchPacked on Zen 4
// (float32 kernels on Sapphire Rapids), few on an Intel processor with AMX.
var kernels = []*kernel{
	{Name: "vector-int8-mxfp4-interleaved-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, batch: 16, tables: tableInt8,
		interleaved: interleavedIntMX4, integers: true}},
	{Name: "vector-int8-nvfp4-interleaved-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, batch: 16, tables: tableInt8,
		interleaved: interleavedIntNV4, integers: true}},
	{Name: "vector-mxfp4-interleaved-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, batch: 16, tables: tableFP4,
		interleaved: interleavedMX4}},
	{Name: "vector-nvfp4-interleaved-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, batch: 16, tables: tableFP4,
		interleaved: interleavedNV4}},
	{Name: "vector-int8-mxfp4-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, few: []int{12, 12}, vector: &vectorKernel{block: 32, bits: 4, step: 128, scale: format.E8M0, batch: 12, batchPacked: 4, tables: tableInt8,
		single: vectorIntMX4, pairs: vectorIntMX4Pairs}},
	{Name: "vector-int8-mxfp6-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, few: []int{14, 10}, vector: &vectorKernel{block: 32, bits: 6, step: 128, scale: format.E8M0, batch: 16, batchPacked: 4, tables: tableInt8,
		single: vectorIntMX6, pairs: vectorIntMX6Pairs}},
	{Name: "vector-int8-mxint8-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, few: []int{12, 12}, vector: &vectorKernel{block: 32, bits: 8, step: 128, scale: format.E8M0, batch: 12, batchPacked: 4, tables: tableInt8,
		single: vectorIntMX8, pairs: vectorIntMX8Pairs}},
	{Name: "vector-int8-nvfp4-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, few: []int{12, 10}, vector: &vectorKernel{block: 16, bits: 4, step: 128, scale: format.E4M3, batch: 16, batchPacked: 4, tables: tableInt8,
		single: vectorIntNV4, pairs: vectorIntNV4Pairs}},
	{Name: "int8-mx-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, few: []int{20, 0}, block: 32, pow2: true, Lanes: 16, MR: 4, NR: 48, MC: int8MC, NC: int8NC, KC: int8KC, dot: []dotFunc{dotMX_4x16, dotMX_4x32, dotMX_4x48}},
	{Name: "int8-nv-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, few: []int{0, 0}, block: 16, Lanes: 16, MR: 4, NR: 48, MC: int8MC, NC: int8NC, KC: int8KC, dot: []dotFunc{dotNV_4x16, dotNV_4x32, dotNV_4x48}},
	{Name: "vector-fp8-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{8, 4}, vector: &vectorKernel{block: 32, bits: 8, step: 64, scale: format.E8M0, batch: 16, batchPacked: 12, tables: tablesBF16,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-bf16-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{4, 3}, vector: &vectorKernel{block: 32, bits: 16, step: 64, batch: 16, batchPacked: 8, tables: tableF32,
		single: vectorBF16AVX512}},
	{Name: "vector-mxfp6-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{8, 4}, vector: &vectorKernel{block: 32, bits: 6, step: 64, scale: format.E8M0, batch: 16, batchPacked: 12, tables: tableBF16x6,
		single: vectorMX6, pairs: vectorMX6Pairs}},
	{Name: "vector-fp8-block128-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{8, 4}, vector: &vectorKernel{block: 128, bits: 8, step: 64, scale: format.F32, batch: 16, batchPacked: 12, tables: tablesBF16x128,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-mxint8-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{8, 4}, vector: &vectorKernel{block: 32, bits: 8, step: 64, scale: format.E8M0, batch: 16, batchPacked: 12, tables: tableBF16Int,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-q8_0-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{8, 4}, vector: &vectorKernel{block: 32, bits: 8, step: 64, scale: format.F32, batch: 16, batchPacked: 12, tables: tableBF16Single,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-mxfp4-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{10, 6}, vector: &vectorKernel{block: 32, bits: 4, step: 128, scale: format.E8M0, batch: 20, minRows: 3, batchPacked: 12, tables: tableFP4,
		single: vectorMX4, pairs: vectorMX4Pairs}},
	{Name: "vector-nvfp4-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, few: []int{12, 5}, vector: &vectorKernel{block: 16, bits: 4, step: 128, scale: format.E4M3, batch: 32, minRows: 3, batchPacked: 12, tables: tableFP4,
		single: vectorNV4, pairs: vectorNV4Pairs}},
	{Name: "vector-f32-f32-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 32, step: 32, lanes: 16, batch: 12, batchPacked: 2, tables: tableF32,
		single: vectorF32AVX512}},
	{Name: "vector-f32-fp8-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, few: []int{8, 4}, vector: &vectorKernel{block: 32, bits: 8, step: 64, scale: format.E8M0, lanes: 16, batch: 16, batchPacked: 8, tables: tableF32,
		single: vectorFP8AVX512}},
	{Name: "vector-f32-fp8-block128-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 128, bits: 8, step: 128, scale: format.F32, lanes: 8, batch: 16, batchPacked: 8, tables: tableF32,
		single: vectorFP8x128AVX2}},
	{Name: "vector-f32-mxint8-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, few: []int{6, 4}, vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 16, batch: 12, batchPacked: 8, tables: tableF32Int,
		single: vectorINT8AVX512}},
	{Name: "vector-f32-q8_0-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, few: []int{6, 4}, vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.F32, lanes: 16, batch: 12, batchPacked: 8, tables: tableF32Single,
		single: vectorINT8AVX512}},
	{Name: "vector-f32-mxfp6-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, few: []int{8, 4}, vector: &vectorKernel{block: 32, bits: 6, step: 64, scale: format.E8M0, lanes: 16, batch: 24, batchPacked: 8, tables: tableF32,
		single: vectorFP6AVX512}},
	{Name: "vector-f32-mxfp4-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, few: []int{10, 5}, vector: &vectorKernel{block: 32, bits: 4, step: 128, scale: format.E8M0, lanes: 16, batch: 24, batchPacked: 8, tables: tableF32,
		single: vectorFP4AVX512}},
	{Name: "vector-f32-nvfp4-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, few: []int{10, 5}, vector: &vectorKernel{block: 16, bits: 4, step: 128, scale: format.E4M3, lanes: 16, batch: 24, batchPacked: 8, tables: tableF32,
		single: vectorFP4x16AVX512}},
	{Name: "bf16-amx", Tier: cpu.AMX, Peak: "TDPBF16PS", panel: panelBF16, Lanes: 16, MR: 32, NR: 32, MC: tileMC, NC: tileNC, fewNC: tileFewNC, KC: tileKC, span: tileSpan, macro: []macroFunc{dotTiles_32x16, dotTiles_32x32}, stream: []streamFunc{streamRows16, streamRows32}},
	{Name: "bf16-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, Lanes: 16, MR: 8, NR: 48, MC: bf16MC, NC: bf16NC, KC: bf16KC, dot: []dotFunc{dotBF16_8x16, dotBF16_8x32, dotBF16_8x48}},
	{Name: "f32-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, Lanes: 16, MR: 8, NR: 48, MC: 192, NC: 1056, KC: 1024, dot: []dotFunc{dotF32_8x16, dotF32_8x32, dotF32_8x48}},
	{Name: "vector-f32-f32-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 32, step: 32, lanes: 8, batch: 12, batchPacked: 2, tables: tableF32,
		single: vectorF32AVX2}},
	{Name: "vector-f32-bf16-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 16, step: 64, lanes: 8, batch: 16, batchPacked: 8, tables: tableF32,
		single: vectorBF16AVX2}},
	{Name: "vector-f32-fp8-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 8, batch: 16, batchPacked: 8, tables: tableF32,
		single: vectorFP8AVX2}},
	{Name: "vector-f32-mxint8-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 8, batch: 16, batchPacked: 8, tables: tableF32Int,
		single: vectorINT8AVX2}},
	{Name: "vector-f32-q8_0-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.F32, lanes: 8, batch: 16, batchPacked: 8, tables: tableF32Single,
		single: vectorINT8AVX2}},
	{Name: "vector-f32-mxfp6-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 6, step: 64, scale: format.E8M0, lanes: 8, batch: 24, batchPacked: 8, tables: tableF32,
		single: vectorFP6AVX2}},
	{Name: "vector-f32-mxfp4-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 32, bits: 4, step: 64, scale: format.E8M0, lanes: 8, batch: 24, batchPacked: 8, tables: tableF32,
		single: vectorFP4AVX2}},
	{Name: "vector-f32-nvfp4-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, vector: &vectorKernel{block: 16, bits: 4, step: 64, scale: format.E4M3, lanes: 8, batch: 24, batchPacked: 8, tables: tableF32,
		single: vectorFP4x16AVX2}},
	{Name: "f32-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, Lanes: 8, MR: 4, NR: 24, MC: 96, NC: 1032, KC: 512, dot: []dotFunc{dotF32_4x8, dotF32_4x16, dotF32_4x24}},
	&referenceVector, &referenceF32, &referenceBF16, &referenceTile, &referenceMX, &referenceNV,
}

// fastPack returns the assembly packing function for the operand, or nil if there is none.
func fastPack(s *side) packFunc {
	f, panel := s.t.Format, s.kernel.panel
	oneScale := f.Block.Rows <= 1 || f.Block.Rows%s.kernel.Lanes == 0 // or one for each row
	switch {
	case s.kernel.Tier == cpu.Plain:
	case s.form == interleaved:
		if panel == panelInt8 {
			return packInterleavedFP4
		}
	case f.Element == format.F32 && panel == panelF32, f.Element == format.BF16 && panel == panelBF16:
		return packDwords
	case f.Element == format.BF16 && panel == panelF32:
		return packHalves
	case f.Element.Bits() > 8:
	case panel == panelF32 && f.Block.Cols%8 == 0:
		return packF32
	case panel == panelBF16 && (f.Scale == format.E8M0 && f.Block.Cols == packBlock && oneScale || s.scales == perChunk && s.chunk%packBlock == 0):
		return packBF16
	case panel == panelBF16 && f.Element == format.E2M1 && f.Scale == format.E4M3 && f.Block.Cols == foldBlock:
		return packFolded
	case panel == panelInt8 && f.Element == format.E2M1 && oneScale:
		return packFP4
	case panel == panelInt8 && s.kernel.pow2 && oneScale:
		return packInt8
	}
	return nil
}
