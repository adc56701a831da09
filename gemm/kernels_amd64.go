//go:build !purego

package gemm

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// kernels is the table of this build, best first.
var kernels = []*kernel{
	{Name: "int8-mx-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, block: 32, pow2: true, Lanes: 16, MR: 4, NR: 48, MC: int8MC, NC: int8NC, KC: int8KC, dot: []dotFunc{dotMX_4x16, dotMX_4x32, dotMX_4x48}},
	{Name: "int8-nv-avx512", Tier: cpu.AVX512, Peak: "VPDPBUSD", panel: panelInt8, block: 16, Lanes: 16, MR: 4, NR: 48, MC: int8MC, NC: int8NC, KC: int8KC, dot: []dotFunc{dotNV_4x16, dotNV_4x32, dotNV_4x48}},
	{Name: "bf16-avx512", Tier: cpu.AVX512, Peak: "VDPBF16PS", panel: panelBF16, Lanes: 16, MR: 8, NR: 48, MC: bf16MC, NC: bf16NC, KC: bf16KC, dot: []dotFunc{dotBF16_8x16, dotBF16_8x32, dotBF16_8x48}},
	{Name: "f32-avx512", Tier: cpu.AVX512, Peak: "VFMADD231PS", panel: panelF32, Lanes: 16, MR: 8, NR: 48, MC: 192, NC: 1536, KC: 512, dot: []dotFunc{dotF32_8x16, dotF32_8x32, dotF32_8x48}},
	{Name: "f32-avx2", Tier: cpu.AVX2, Peak: "VFMADD231PS", panel: panelF32, Lanes: 8, MR: 4, NR: 24, MC: 192, NC: 1536, KC: 512, dot: []dotFunc{dotF32_4x8, dotF32_4x16, dotF32_4x24}},
	&plainF32, &plainBF16, &plainMX, &plainNV,
}

// The 16 lines of a panel, and the blocks that the packing in assembly takes.
const (
	packLanes = 16
	packBlock = 32 // positions in an iteration
)

// fastPack returns the packing in assembly for the operand, nil where there is
// none: BF16 panels of codes of at most eight bits whose scales are E8M0 or not
// in the elements, and int8 panels of FP4.
func fastPack(s *side) packFunc {
	f := s.t.Format
	if s.kernel.Tier != cpu.AVX512 || f.Element.Bits() > 8 || f.Block.Rows > 1 && f.Block.Rows%packLanes != 0 {
		return nil
	}
	switch {
	case s.kernel.panel == panelBF16 && !f.Element.Integer && (f.Scale == format.E8M0 && f.Block.Cols == packBlock || s.scales == perChunk && s.chunk%packBlock == 0):
		return packBF16
	case s.kernel.panel == panelInt8 && f.Element == format.E2M1:
		return packFP4
	}
	return nil
}
