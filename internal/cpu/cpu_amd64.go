//go:build !purego

package cpu

import (
	"encoding/binary"

	"golang.org/x/sys/cpu"
)

// requirements returns the tiers above Plain in ascending order.
func requirements() []requirement {
	x := cpu.X86
	return []requirement{
		{AVX2, x.HasAVX2 && x.HasFMA && x.HasF16C},
		{AVX512, x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ &&
			x.HasAVX512VBMI && x.HasAVX512VNNI && x.HasAVX512BF16 && x.HasAVX512GFNI},
		{AMX, x.HasAMXTile && x.HasAMXBF16 && permitTiles()},
	}
}

// cpuid executes CPUID with the given leaf and subleaf 0.
func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)

// identity returns the processor's vendor and family, of CPUID leaves 0 and 1.
func identity() (vendor string, family int) {
	_, b, c, d := cpuid(0)
	var name []byte
	for _, part := range []uint32{b, d, c} {
		name = binary.LittleEndian.AppendUint32(name, part)
	}
	version, _, _, _ := cpuid(1)
	family = int(version >> 8 & 15)
	if family == 15 { // the extended family adds to it
		family += int(version >> 20 & 255)
	}
	return string(name), family
}
