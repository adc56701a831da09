//go:build (!amd64 && !arm64) || purego

package gemm

// kernels is the kernel table of this build, fastest first.
var kernels = []*kernel{&referenceVector, &referenceF32, &referenceBF16, &referenceOdd, &referenceTile, &referenceMX, &referenceNV,
	&referenceWideMX, &referenceWideNV}

// packings is empty: this build has no packing in assembly.
var packings []packing
