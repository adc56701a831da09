//go:build !purego

package gemm

import "github.com/microscale-go/microscale/format"

// kernels is the kernel table of this build. The vector kernels take one row of A at a time;
// their row limits were not measured, but decoding B for each row is faster than packing it in
// portable Go.
var kernels = []*kernel{
	{Name: "vector-f32-fp8-neon", needs: vectorFP8NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 8, step: 32, scale: format.E8M0, lanes: 4, tables: tableF32, most: 1, single: vectorFP8NEON}},
	{Name: "vector-f32-mxfp4-neon", needs: vectorFP4NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 32, bits: 4, step: 32, scale: format.E8M0, lanes: 4, tables: tableF32, most: 1, single: vectorFP4NEON}},
	{Name: "vector-f32-nvfp4-neon", needs: vectorFP4x16NEONNeeds, panel: panelF32, vector: &vectorKernel{block: 16, bits: 4, step: 32, scale: format.E4M3, lanes: 4, tables: tableF32, most: 1, single: vectorFP4x16NEON}},
	&referenceVector, &referenceF32, &referenceBF16, &referenceTile, &referenceMX, &referenceNV,
}

// packings is empty: this build has no packing in assembly.
var packings []packing
