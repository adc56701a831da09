package asm

import (
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
)

// TestNeeds checks the features of forms of instructions: their widths, masks, broadcasts, high registers, and
// operands that only one encoding has.
func TestNeeds(t *testing.T) {
	const vl = cpu.X86AVX512F | cpu.X86AVX512VL
	ax := Reg("AX")
	for _, tc := range []struct {
		mnemonic string
		operands []any
		want     cpu.Set
	}{
		{"ADDQ", []any{1, ax}, 0},
		{"BZHIQ", []any{ax, ax, ax}, cpu.X86BMI2},
		{"VADDPS", []any{X(1), X(2), X(3)}, cpu.X86AVX},
		{"VADDPS", []any{Y(1), Y(2), Y(15)}, cpu.X86AVX},
		{"VADDPS", []any{Y(1), Y(2), Y(16)}, vl},
		{"VADDPS", []any{Z(1), Z(2), Z(3)}, cpu.X86AVX512F},
		{"VADDPS.BCST", []any{ax.At(0), X(2), X(3)}, vl},
		{"VADDPS", []any{Y(1), Y(2), K(1), Y(3)}, vl},
		{"VADDSS", []any{X(1), X(2), X(16)}, cpu.X86AVX512F},
		{"VXORPS", []any{Z(1), Z(2), Z(3)}, cpu.X86AVX512F | cpu.X86AVX512DQ},
		{"VPADDD", []any{X(1), X(2), X(3)}, cpu.X86AVX},
		{"VPADDD", []any{Y(1), Y(2), Y(3)}, avx2Set},
		{"VPADDB", []any{Z(1), Z(2), Z(3)}, evexBW},
		{"VPANDD", []any{Y(1), Y(2), Y(3)}, vl},
		{"VPSRLD", []any{16, Y(1), Y(3)}, avx2Set},
		{"VPSRLD", []any{16, ax.At(0), Y(3)}, vl},
		{"VPSHUFD", []any{16, ax.At(0), Y(3)}, avx2Set},
		{"VPBROADCASTD", []any{X(0), Y(1)}, avx2Set},
		{"VPBROADCASTD", []any{ax, Y(1)}, vl},
		{"VPBROADCASTD", []any{ax, Z(1)}, evexF},
		{"VBROADCASTSS", []any{ax.At(0), Y(1)}, cpu.X86AVX},
		{"VBROADCASTSS", []any{X(2), Y(1)}, avx2Set},
		{"VBROADCASTSS", []any{X(2), X(1)}, avx2Set},
		{"VBROADCASTSS", []any{X(2), Z(1)}, evexF},
		{"VCVTPH2PS", []any{X(2), Y(1)}, f16c},
		{"VPERMD", []any{Y(0), Y(1), Y(2)}, avx2Set},
		{"VPERMB", []any{Z(0), Z(1), Z(2)}, evexF | cpu.X86AVX512VBMI},
		{"VPDPBUSD", []any{Y(0), Y(1), Y(2)}, vl | cpu.X86AVX512VNNI}, // as Go's assembler encodes it
		{"VDPBF16PS", []any{Z(0), Z(1), Z(2)}, evexF | cpu.X86AVX512BF16},
		{"KMOVW", []any{ax, K(1)}, evexF},
		{"KMOVB", []any{ax, K(1)}, evexDQ},
		{"KMOVQ", []any{ax, K(1)}, evexBW},
		{"VPCMPUB", []any{1, X(1), X(2), K(1)}, vl | cpu.X86AVX512BW},
		{"VPCMPEQD", []any{Z(1), Z(2), K(1)}, evexF},
		{"VEXTRACTI32X4", []any{1, Y(1), X(2)}, vl},
		{"VPEXTRD", []any{1, X(1), ax}, cpu.X86AVX},
		{"TDPBF16PS", []any{T(0), T(1), T(2)}, cpu.X86AMXTile | cpu.X86AMXBF16},
	} {
		if got := x86Needs(tc.mnemonic, tc.operands); got != tc.want {
			t.Errorf("%s %v: got %v, want %v", tc.mnemonic, tc.operands, got, tc.want)
		}
	}
	for _, unknown := range []string{"VPNONSENSE", "JUMP"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s has needs", unknown)
				}
			}()
			x86Needs(unknown, nil)
		}()
	}
}

// TestRoutineNeeds checks that a function needs what the routines that it calls need.
func TestRoutineNeeds(t *testing.T) {
	f := NewFile("a", "b")
	inner := f.Routine("inner", "inner adds.")
	inner.I("VPADDB", Z(0), Z(1), Z(2))
	outer := f.Routine("outer", "outer calls inner.")
	outer.Call(inner)
	fn := f.Func("function", "function calls outer.", "")
	fn.I("VADDPS", X(0), X(1), X(2))
	fn.Call(outer)
	if got, want := fn.allNeeds(), cpu.X86AVX|evexBW; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
