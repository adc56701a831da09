//go:build !amd64 || purego

package gemm

// kernels is the table of this build, best first.
var kernels = []*kernel{&plainVector, &plainF32, &plainBF16, &plainTile, &plainMX, &plainNV}

// fastPack returns nothing: packing is plain.
func fastPack(*side) packFunc { return nil }
