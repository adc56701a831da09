//go:build !purego

package gemm

import "github.com/microscale-go/microscale/format"

// kernels is the kernel table of this build. Tiles of integers, if A has enough rows for them, come before vector kernels; those in float32
// take one row of A at a time.
var kernels = []*kernel{
	{Name: "int8-mx-neoni8mm", needs: dotMX_4x8Needs, Peak: "SMMLA v.4s", panel: panelInt8, block: 32, pow2: true, wide: true, Lanes: 8,
		MR: 4, NR: 8, KC: int8KC,
		dot: []dotFunc{dotMX_4x8}},
	{Name: "int8-nv-neoni8mm", needs: dotNV_4x8Needs, Peak: "SMMLA v.4s", panel: panelInt8, block: 16, wide: true, Lanes: 8, MR: 4, NR: 8,
		KC:  int8KC,
		dot: []dotFunc{dotNV_4x8}},
	{Name: "vector-int8-mxfp4-interleaved-neondot", needs: interleavedIntMX4SDOTNeeds, panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 4, scale: format.E8M0, tables: tableInt8, interleaved: interleavedIntMX4SDOT, integers: true}},
	{Name: "vector-int8-nvfp4-interleaved-neondot", needs: interleavedIntNV4SDOTNeeds, panel: panelInt8,
		vector: &vectorKernel{block: 16, bits: 4, scale: format.E4M3, tables: tableInt8, interleaved: interleavedIntNV4SDOT, integers: true}},
	{Name: "vector-int8-mxint8-interleaved-neondot", needs: interleavedIntMX8SDOTNeeds, panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.E8M0, tables: tableInt8, interleaved: interleavedIntMX8SDOT, integers: true}},
	{Name: "vector-int8-q8_0-interleaved-neondot", needs: interleavedIntQ8SDOTNeeds, panel: panelInt8,
		vector: &vectorKernel{block: 32, bits: 8, scale: format.F32, tables: tableInt8, interleaved: interleavedIntQ8SDOT, integers: true}},
	{Name: "vector-f32-f32-neon", needs: vectorF32NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 32, step: 32, lanes: 4,
		tables: tableF32, most: 1,
		single: vectorF32NEON}},
	{Name: "vector-f32-bf16-neon", needs: vectorBF16NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 16, step: 32, lanes: 4,
		tables: tableF32, most: 1,
		single: vectorBF16NEON}},
	{Name: "vector-f32-fp8-neon", needs: vectorFP8NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32,
		scale: format.E8M0, lanes: 4, tables: tableF32, most: 1,
		single: vectorFP8NEON}},
	{Name: "vector-f32-fp8-block128-neon", needs: vectorFP8x128NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 128, bits: 8, step: 32,
		scale: format.F32, lanes: 4, tables: tableF32, most: 1,
		single: vectorFP8x128NEON}},
	{Name: "vector-f32-mxint8-neon", needs: vectorINT8NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32,
		scale: format.E8M0, lanes: 4, tables: tableF32Int, most: 1,
		single: vectorINT8NEON}},
	{Name: "vector-f32-q8_0-neon", needs: vectorINT8NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32,
		scale: format.F32, lanes: 4, tables: tableF32Single, most: 1,
		single: vectorINT8NEON}},
	{Name: "vector-f32-mxfp6-neon", needs: vectorFP6NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 6, step: 32,
		scale: format.E8M0, lanes: 4, tables: tableF32, most: 1,
		single: vectorFP6NEON}},
	{Name: "vector-f32-mxfp4-neon", needs: vectorFP4NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 4, step: 32,
		scale: format.E8M0, lanes: 4, tables: tableF32, most: 1,
		single: vectorFP4NEON}},
	{Name: "vector-f32-nvfp4-neon", needs: vectorFP4x16NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 16, bits: 4, step: 32,
		scale: format.E4M3, lanes: 4, tables: tableF32, most: 1,
		single: vectorFP4x16NEON}},
	{Name: "bf16-neon", needs: dotBF16_8x8Needs, Peak: "BFMMLA v.4s", panel: panelBF16, wide: true, Lanes: 8, MR: 8, NR: 8, KC: oddKC,
		dot: []dotFunc{dotBF16_8x8}},
	{Name: "f32-neon", needs: dotF32_8x8Needs, Peak: "FMLA v.4s", panel: panelF32, Lanes: 8, MR: 8, NR: 8, KC: 512,
		dot: []dotFunc{dotF32_8x8}},
	&referenceVector, &referenceF32, &referenceBF16, &referenceOdd, &referenceTile, &referenceMX, &referenceNV,
	&referenceWideMX, &referenceWideNV,
}

// packings are the packing functions in assembly, in the order in which they are tried.
var packings = []packing{
	{transposeQuads8Needs, "copy, wide lanes", allOf(unchanged, wideLanes), packDwords(quads8)},
	{packWideNibblesNeeds, "FP4 to int8", allOf(asInt8, nibbles), packWide(4, nil, packWideNibbles)},
	{packWideBytesNeeds, "MXINT8 to int8", allOf(asInt8, integers), packWide(8, nil, packWideBytes)},
	{packWideBytesNeeds, "E2M3 to int8", allOf(asInt8, sixes), packWide(8, sixIntegers, packWideBytes)},
	{transposeDwords8Needs, "copy, 8 lanes", allOf(unchanged, lanes(8)), packDwords(dwords8)},
	{packHalvesF32Needs, "BF16 to float32", bf16AsF32, packHalves},
	{packNibblesF32Needs, "FP4 to float32", allOf(bytesAsF32, nibbles), packCodes(4, nibblesF32)},
	{packIntegersF32Needs, "MXINT8 to float32", allOf(bytesAsF32, integers), packCodes(8, integersF32)},
	{packFloatsF32Needs, "codes to float32", allOf(bytesAsF32, floats), packCodes(8, floatsF32)},
	{packNibblesBF16Needs, "FP4 to BF16", allOf(bytesAsBF16, nibbles), packCodes(4, nibblesBF16)},
	{packIntegersBF16Needs, "MXINT8 to BF16", allOf(bytesAsBF16, integers), packCodes(8, integersBF16)},
	{packFloatsBF16Needs, "codes to BF16", allOf(bytesAsBF16, floats), packCodes(8, floatsBF16)},
}
