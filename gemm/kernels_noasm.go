//go:build (!amd64 && !arm64) || purego

package gemm

// kernels is the kernel table of this build, fastest first.
var kernels = []*kernel{&plainVector, &plainF32, &plainBF16, &plainTile, &plainMX, &plainNV}

// fastPack returns nil: this build has no packing in assembly.
func fastPack(*side) packFunc { return nil }
