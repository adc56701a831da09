//go:build 386 || arm || mips || mipsle

package format

// Tensors can have more elements than a 32-bit int counts. This package, which all packages
// that compute import, does not compile on 32-bit platforms.
const _ = microscale_requires_a_64_bit_platform
