//go:build !purego

package cpu

import (
	"encoding/binary"

	"golang.org/x/sys/cpu"
)

// requirements returns the tiers above Plain in rising order.
func requirements() []requirement {
	x := cpu.X86
	return []requirement{
		{AVX2, x.HasAVX2 && x.HasFMA && x.HasF16C},
		{AVX512, x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ &&
			x.HasAVX512VBMI && x.HasAVX512VNNI && x.HasAVX512BF16 && x.HasAVX512GFNI},
		{AMX, x.HasAMXTile && x.HasAMXBF16 && permitTiles()},
	}
}

// cpuid returns a leaf of what the processor says of itself.
func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)

// identity returns the vendor and the family that CPUID's leaves 0 and 1 tell.
func identity() (vendor string, family int) {
	_, b, c, d := cpuid(0)
	var name []byte
	for _, part := range []uint32{b, d, c} {
		name = binary.LittleEndian.AppendUint32(name, part)
	}
	version, _, _, _ := cpuid(1)
	family = int(version >> 8 & 15)
	if family == 15 { // continued in the extended family
		family += int(version >> 20 & 255)
	}
	return string(name), family
}
