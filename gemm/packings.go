//go:build (amd64 || arm64) && !purego

package gemm

import "github.com/microscale-go/microscale/format"

// The operands that packings of panels of floats are for.

// allOf reports whether all conditions hold.
func allOf(conditions ...func(side) bool) func(side) bool {
	return func(s side) bool {
		for _, holds := range conditions {
			if !holds(s) {
				return false
			}
		}
		return true
	}
}

func lanes(n int) func(side) bool { return func(s side) bool { return s.kernel.Lanes == n } }

// unchanged reports whether the panel stores elements as the operand does.
func unchanged(s side) bool {
	e, panel := s.t.Format.Element, s.kernel.panel
	return s.form != interleaved && (e == format.F32 && panel == panelF32 || e == format.BF16 && panel == panelBF16)
}

func bf16AsF32(s side) bool {
	return s.form != interleaved && s.t.Format.Element == format.BF16 && s.kernel.panel == panelF32
}

func bytesAsF32(s side) bool {
	f := s.t.Format
	return s.form != interleaved && f.Element.Bits() <= 8 && s.kernel.panel == panelF32 && f.Block.Cols%8 == 0
}
