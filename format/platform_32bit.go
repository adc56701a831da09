//go:build 386 || arm || mips || mipsle

package format

// Tensors have more elements than a 32-bit int counts, so every such platform is
// refused here, at the bottom of all packages that compute.
const _ = microscale_requires_a_64_bit_platform
