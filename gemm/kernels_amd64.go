//go:build !purego

package gemm

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// kernels is the kernel table of this build: vector kernels, those that are exact or fastest first, then
// tile kernels (see order). What was tuned is in tuning.go.
var kernels = []*kernel{
	{Name: "vector-int8-mxfp4-interleaved-avx512", needs: interleavedIntMX4Needs, Peak: "VPDPBUSD zmm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, tables: tableInt8,
			interleaved: interleavedIntMX4, integers: true}},
	{Name: "vector-int8-nvfp4-interleaved-avx512", needs: interleavedIntNV4Needs, Peak: "VPDPBUSD zmm", panel: panelInt8,
		vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, tables: tableInt8,
			interleaved: interleavedIntNV4, integers: true}},
	{Name: "vector-mxfp4-interleaved-avx512", needs: interleavedMX4Needs, Peak: "VDPBF16PS zmm", panel: panelBF16,
		vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, tables: tableFP4,
			interleaved: interleavedMX4}},
	{Name: "vector-nvfp4-interleaved-avx512", needs: interleavedNV4Needs, Peak: "VDPBF16PS zmm", panel: panelBF16,
		vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, tables: tableFP4,
			interleaved: interleavedNV4}},
	{Name: "vector-int8-mxfp4-interleaved-avxvnni", needs: interleavedIntMX4VNNINeeds, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, tables: tableInt8,
			interleaved: interleavedIntMX4VNNI, integers: true}},
	{Name: "vector-int8-nvfp4-interleaved-avxvnni", needs: interleavedIntNV4VNNINeeds, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, tables: tableInt8,
			interleaved: interleavedIntNV4VNNI, integers: true}},
	{Name: "vector-int8-mxint8-interleaved-avxvnni", needs: interleavedInt8VNNINeeds, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.E8M0, tables: tableInt8,
			interleaved: interleavedInt8VNNI, integers: true}},
	{Name: "vector-int8-q8_0-interleaved-avxvnni", needs: interleavedInt8VNNINeeds, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.F32, tables: tableInt8,
			interleaved: interleavedInt8VNNI, integers: true}},
	{Name: "vector-int8-mxfp4-interleaved-avx2", needs: interleavedIntMX4AVX2Needs, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, tables: tableInt8,
			interleaved: interleavedIntMX4AVX2, integers: true}},
	{Name: "vector-int8-nvfp4-interleaved-avx2", needs: interleavedIntNV4AVX2Needs, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, tables: tableInt8,
			interleaved: interleavedIntNV4AVX2, integers: true}},
	{Name: "vector-int8-mxint8-interleaved-avx2", needs: interleavedInt8AVX2Needs, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.E8M0, tables: tableInt8,
			interleaved: interleavedInt8AVX2, integers: true, signs: true}},
	{Name: "vector-int8-q8_0-interleaved-avx2", needs: interleavedInt8AVX2Needs, unless: cpu.X86AVX512VNNI,
		Peak: "VFMADD231PS ymm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.F32, tables: tableInt8,
			interleaved: interleavedInt8AVX2, integers: true, signs: true}},
	{Name: "vector-f32-fp8-interleaved-avx2", needs: interleavedFP8AVX2Needs, unless: cpu.X86AVX512F,
		Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.E8M0, lanes: 8, tables: tableE4M3,
			interleaved: interleavedFP8AVX2, most: 2, amplify: 100}},
	{Name: "vector-f32-mxfp4-interleaved-avx2", needs: interleavedFP4AVX2Needs, unless: cpu.X86AVX512F,
		Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, lanes: 8, tables: tableF32,
			interleaved: interleavedFP4AVX2, most: 2}},
	{Name: "vector-f32-nvfp4-interleaved-avx2", needs: interleavedFP4AVX2Needs, unless: cpu.X86AVX512F,
		Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, lanes: 8, tables: tableF32,
			interleaved: interleavedFP4AVX2, most: 2}},
	{Name: "vector-int8-mxfp4-avx512", needs: vectorIntMX4Needs, Peak: "VPDPBUSD zmm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 4, step: 128, scale: format.E8M0, tables: tableInt8,
			single: vectorIntMX4, pairs: vectorIntMX4Pairs}},
	{Name: "vector-int8-mxfp6-avx512", needs: vectorIntMX6Needs, Peak: "VPDPBUSD zmm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 6, step: 128, scale: format.E8M0, tables: tableInt8,
			single: vectorIntMX6, pairs: vectorIntMX6Pairs}},
	{Name: "vector-int8-mxint8-avx512", needs: vectorIntMX8Needs, Peak: "VPDPBUSD zmm", panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, step: 128, scale: format.E8M0, tables: tableInt8,
			single: vectorIntMX8, pairs: vectorIntMX8Pairs}},
	{Name: "vector-int8-nvfp4-avx512", needs: vectorIntNV4Needs, Peak: "VPDPBUSD zmm", panel: panelInt8,
		vector: &vectorKernel{block: 16, bits: 4, step: 128, scale: format.E4M3, tables: tableInt8,
			single: vectorIntNV4, pairs: vectorIntNV4Pairs}},
	{Name: "vector-fp8-avx512", needs: vectorMX8Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, vector: &vectorKernel{block: 32, bits: 8,
		step: 64, scale: format.E8M0, tables: tablesBF16,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-bf16-avx512", needs: vectorBF16AVX512Needs, Peak: "VDPBF16PS zmm", panel: panelBF16,
		vector: &vectorKernel{block: 32, bits: 16, step: 64, tables: tableF32,
			single: vectorBF16AVX512}},
	{Name: "vector-mxfp6-avx512", needs: vectorMX6Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, vector: &vectorKernel{block: 32, bits: 6,
		step: 64, scale: format.E8M0, tables: tableBF16x6,
		single: vectorMX6, pairs: vectorMX6Pairs}},
	{Name: "vector-fp8-block128-avx512", needs: vectorMX8Needs, Peak: "VDPBF16PS zmm", panel: panelBF16,
		vector: &vectorKernel{block: 128, bits: 8, step: 64, scale: format.F32, tables: tablesBF16x128,
			single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-mxint8-avx512", needs: vectorMX8Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, vector: &vectorKernel{block: 32, bits: 8,
		step: 64, scale: format.E8M0, tables: tableBF16Int,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-q8_0-avx512", needs: vectorMX8Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, vector: &vectorKernel{block: 32, bits: 8,
		step: 64, scale: format.F32, tables: tableBF16Single,
		single: vectorMX8, pairs: vectorMX8Pairs}},
	{Name: "vector-mxfp4-avx512", needs: vectorMX4Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, vector: &vectorKernel{block: 32, bits: 4,
		step: 128, scale: format.E8M0, tables: tableFP4,
		single: vectorMX4, pairs: vectorMX4Pairs}},
	{Name: "vector-nvfp4-avx512", needs: vectorNV4Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, vector: &vectorKernel{block: 16, bits: 4,
		step: 128, scale: format.E4M3, tables: tableFP4,
		single: vectorNV4, pairs: vectorNV4Pairs}},
	{Name: "vector-f32-f32-avx512", needs: vectorF32AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 32, step: 32, lanes: 16, tables: tableF32,
			single: vectorF32AVX512}},
	{Name: "vector-f32-fp8-avx512", needs: vectorFP8AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, step: 64, scale: format.E8M0, lanes: 16, tables: tableF32,
			single: vectorFP8AVX512}},
	{Name: "vector-f32-fp8-block128-avx2", needs: vectorFP8x128AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 128, bits: 8, step: 128, scale: format.F32, lanes: 8, tables: tableF32,
			single: vectorFP8x128AVX2}},
	{Name: "vector-f32-mxint8-avx512", needs: vectorINT8AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 16, tables: tableF32Int,
			single: vectorINT8AVX512}},
	{Name: "vector-f32-q8_0-avx512", needs: vectorINT8AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.F32, lanes: 16, tables: tableF32Single,
			single: vectorINT8AVX512}},
	{Name: "vector-f32-mxfp6-avx512", needs: vectorFP6AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 6, step: 64, scale: format.E8M0, lanes: 16, tables: tableF32,
			single: vectorFP6AVX512}},
	{Name: "vector-f32-mxfp4-avx512", needs: vectorFP4AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 4, step: 128, scale: format.E8M0, lanes: 16, tables: tableF32,
			single: vectorFP4AVX512}},
	{Name: "vector-f32-nvfp4-avx512", needs: vectorFP4x16AVX512Needs, Peak: "VFMADD231PS zmm", panel: panelF32,
		vector: &vectorKernel{block: 16, bits: 4, step: 128, scale: format.E4M3, lanes: 16, tables: tableF32,
			single: vectorFP4x16AVX512}},
	{Name: "vector-f32-f32-avx2", needs: vectorF32AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 32, step: 32, lanes: 8, tables: tableF32,
			single: vectorF32AVX2}},
	{Name: "vector-f32-bf16-avx2", needs: vectorBF16AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 16, step: 64, lanes: 8, tables: tableF32,
			single: vectorBF16AVX2}},
	{Name: "vector-f32-fp8-avx2", needs: vectorFP8AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 8, tables: tableF32,
			single: vectorFP8AVX2}},
	{Name: "vector-f32-mxint8-avx2", needs: vectorINT8AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 8, tables: tableF32Int,
			single: vectorINT8AVX2}},
	{Name: "vector-f32-q8_0-avx2", needs: vectorINT8AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.F32, lanes: 8, tables: tableF32Single,
			single: vectorINT8AVX2}},
	{Name: "vector-f32-mxfp6-avx2", needs: vectorFP6AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 6, step: 64, scale: format.E8M0, lanes: 8, tables: tableF32,
			single: vectorFP6AVX2}},
	{Name: "vector-f32-mxfp4-avx2", needs: vectorFP4AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 32, bits: 4, step: 64, scale: format.E8M0, lanes: 8, tables: tableF32,
			single: vectorFP4AVX2}},
	{Name: "vector-f32-nvfp4-avx2", needs: vectorFP4x16AVX2Needs, Peak: "VFMADD231PS ymm", panel: panelF32,
		vector: &vectorKernel{block: 16, bits: 4, step: 64, scale: format.E4M3, lanes: 8, tables: tableF32,
			single: vectorFP4x16AVX2}},
	{Name: "int8-mx-avx512", needs: dotMX_4x16Needs, Peak: "VPDPBUSD zmm", panel: panelInt8, block: 32, pow2: true, Lanes: 16, MR: 4, NR: 48,
		KC: int8KC, dot: []dotFunc{dotMX_4x16, dotMX_4x32, dotMX_4x48}},
	{Name: "int8-nv-avx512", needs: dotNV_4x16Needs, Peak: "VPDPBUSD zmm", panel: panelInt8, block: 16, Lanes: 16, MR: 4, NR: 48, KC: int8KC,
		dot: []dotFunc{dotNV_4x16, dotNV_4x32, dotNV_4x48}},
	{Name: "bf16-amx", needs: dotTiles_32x16Needs, Peak: "TDPBF16PS tmm", panel: panelBF16, Lanes: 16, MR: 32, NR: 32, KC: tileKC,
		span: tileSpan, macro: []macroFunc{dotTiles_32x16, dotTiles_32x32}, stream: []streamFunc{streamRows16, streamRows32}},
	{Name: "bf16-avx512", needs: dotBF16_8x16Needs, Peak: "VDPBF16PS zmm", panel: panelBF16, Lanes: 16, MR: 8, NR: 48, KC: bf16KC,
		dot: []dotFunc{dotBF16_8x16, dotBF16_8x32, dotBF16_8x48}},
	{Name: "f32-avx512", needs: dotF32_8x16Needs, Peak: "VFMADD231PS zmm", panel: panelF32, Lanes: 16, MR: 8, NR: 48, KC: 1024,
		dot: []dotFunc{dotF32_8x16, dotF32_8x32, dotF32_8x48}},
	{Name: "f32-avx2", needs: dotF32_4x8Needs, Peak: "VFMADD231PS ymm", panel: panelF32, Lanes: 8, MR: 4, NR: 24, KC: 512,
		dot: []dotFunc{dotF32_4x8, dotF32_4x16, dotF32_4x24}},
	&referenceVector, &referenceF32, &referenceBF16, &referenceOdd, &referenceTile, &referenceMX, &referenceNV,
	&referenceWideMX, &referenceWideNV,
}

// packings are the packing functions in assembly, in the order in which they are tried.
var packings = []packing{
	{transposeDwords16Needs | packMXNeeds | packNVNeeds, "FP4 to int8, interleaved", interleavedIn(panelInt8), packInterleavedFP4},
	{copyRowsNeeds, "copy to tiles", allOf(unchanged, inTiles), packDwords(rowDwords)},
	{transposeDwords16Needs, "copy, 16 lanes", allOf(unchanged, notInTiles, lanes(16)), packDwords(dwords16)},
	{transposeDwords8Needs, "copy, 8 lanes", allOf(unchanged, notInTiles, lanes(8)), packDwords(dwords8)},
	{packHalvesF32Needs, "BF16 to float32", bf16AsF32, packHalves},
	{packFloatsF32Needs | packBytesF32Needs, "codes to float32", bytesAsF32, packCodes(8, bytesF32)},
	{packBytesRowsNeeds | transposeScalesNeeds | splitSixesNeeds | splitNibblesNeeds, "codes to BF16 tiles",
		allOf(bytesAsBF16, inTiles), packBF16(packBytesRows)},
	{packBytesBF16Needs | transposeScalesNeeds | splitSixesNeeds | splitNibblesNeeds, "codes to BF16",
		allOf(bytesAsBF16, notInTiles), packBF16(packBytesBF16)},
	{copyRowsNeeds | foldNibblesNeeds, "NVFP4 to BF16 tiles", allOf(nibblesFolded, inTiles), packFolded(rowDwords)},
	{transposeDwords16Needs | foldNibblesNeeds, "NVFP4 to BF16", allOf(nibblesFolded, notInTiles), packFolded(dwords16)},
	{packMXNeeds | packNVNeeds | transposeScalesNeeds | splitTilesNeeds, "FP4 to int8", fp4AsInt8, packFP4},
	{packIntNeeds | transposeScalesNeeds | splitTilesNeeds, "MXINT8 to int8", integersAsInt8, packIntegers},
	{packSixNeeds | transposeScalesNeeds | splitSixesNeeds | splitTilesNeeds, "E2M3 to int8", sixesAsInt8, packSixes},
}

func interleavedIn(panel panelType) func(side) bool {
	return func(s side) bool { return s.form == interleaved && s.kernel.panel == panel }
}

func inTiles(s side) bool    { return s.rowTiles() }
func notInTiles(s side) bool { return !s.rowTiles() }

func bytesAsBF16(s side) bool {
	f := s.t.Format
	return s.form != interleaved && bf16Tables[f.Element] != nil && s.kernel.panel == panelBF16 &&
		(f.Scale == format.E8M0 && f.Block.Cols == packBlock && s.oneScale() || s.scales == perChunk && s.chunk%packBlock == 0)
}

func nibblesFolded(s side) bool {
	f := s.t.Format
	return s.form != interleaved && s.kernel.panel == panelBF16 && f.Element == format.E2M1 && f.Scale == format.E4M3 &&
		f.Block.Cols == foldBlock
}

func fp4AsInt8(s side) bool {
	return s.form != interleaved && s.kernel.panel == panelInt8 && s.t.Format.Element == format.E2M1 && s.oneScale()
}

func integersAsInt8(s side) bool {
	return s.form != interleaved && s.kernel.panel == panelInt8 && s.kernel.pow2 && s.t.Format.Element.Integer && s.oneScale()
}

func sixesAsInt8(s side) bool {
	return s.form != interleaved && s.kernel.panel == panelInt8 && s.kernel.pow2 && s.t.Format.Element == format.E2M3 && s.oneScale()
}

// oneScale reports whether the rows of a panel have one scale for each position, or one for each row.
func (s *side) oneScale() bool {
	rows := s.t.Format.Block.Rows
	return rows <= 1 || rows%s.kernel.Lanes == 0
}
