//go:build !purego

package bench

import "unsafe"

// movers lists the ways to move memory by tier, fastest tier first, and within a tier plain
// stores before non-temporal ones.
var movers = []mover{
	{"avx512", copyAVX512Needs, PlainStores, reader(readAVX512), writer(writeAVX512), copier(copyAVX512), distances},
	{"avx512 non-temporal", copyNTAVX512Needs, NonTemporal, reader(readAVX512), writer(writeNTAVX512), copier(copyNTAVX512), distances},
	{"avx2", readAVX2Needs, PlainStores, reader(readAVX2), writer(writeAVX2), copier(copyAVX2), distances},
	{"avx2 non-temporal", readAVX2Needs, NonTemporal, reader(readAVX2), writer(writeNTAVX2), copier(copyNTAVX2), distances},
	plainMover,
}

// distances are the prefetch distances to try, in bytes: none, and that of this module's
// kernels.
var distances = []int{0, 4 << 10}

func reader(kernel func(p unsafe.Pointer, n, ahead int)) func([]byte, int) {
	return func(p []byte, ahead int) {
		if n := len(p) / chunkBytes; n > 0 {
			kernel(unsafe.Pointer(&p[0]), n, ahead)
		}
	}
}

func writer(kernel func(p unsafe.Pointer, n int)) func([]byte) {
	return func(p []byte) {
		if n := len(p) / lineBytes; n > 0 {
			kernel(unsafe.Pointer(&p[0]), n)
		}
	}
}

func copier(kernel func(dst, src unsafe.Pointer, n, ahead int)) func(dst, src []byte, ahead int) {
	return func(dst, src []byte, ahead int) {
		if n := len(src) / chunkBytes; n > 0 {
			kernel(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), n, ahead)
		}
	}
}

// peaks lists the instructions that bound kernels.
var peaks = []peak{
	{"TDPBF16PS", "tmm", peakTDPBF16Needs, Floats, peakRound * 16 * 16 * 32 * 2, peakTDPBF16},
	{"VDPBF16PS", "zmm", peakDPBF16Needs, Floats, peakRound * 16 * 4, peakDPBF16},
	{"VPDPBUSD", "zmm", peakDPBUSDNeeds, Ints, peakRound * 16 * 8, peakDPBUSD},
	{"VFMADD231PS", "zmm", peakFMA512Needs, Floats, peakRound * 16 * 2, peakFMA512},
	{"VFMADD231PS", "ymm", peakFMA256Needs, Floats, peakRound * 8 * 2, peakFMA256},
	plainPeak,
}

// peakRound is the number of instructions in a round of the kernels above.
const peakRound = 24

// separators lists the separate passes by tier, fastest first.
var separators = []separator{
	{blockAmax32AVX512Needs, 32, blockAmax32AVX512, scaleBlocks32AVX512},
	{blockAmax16AVX512Needs, 16, blockAmax16AVX512, scaleBlocks16AVX512},
	{blockAmax32AVX2Needs, 32, blockAmax32AVX2, scaleBlocks32AVX2},
	{blockAmax16AVX2Needs, 16, blockAmax16AVX2, scaleBlocks16AVX2},
	plainSeparator(32), plainSeparator(16),
}
