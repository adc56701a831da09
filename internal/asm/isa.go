package asm

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/internal/cpu"
)

// x86Row lists mnemonics of amd64 whose forms need the same features: those encoded with VEX on X and
// on Y registers, and those encoded with EVEX, which masks, broadcasts, Z registers and registers above
// 15 require. 0 stands for a form that does not exist. (Intel SDM volume 2, "CPUID Feature Flag".)
type x86Row struct {
	x, y, evex cpu.Set
	mnemonics  string
}

const (
	avx2Set = cpu.X86AVX | cpu.X86AVX2
	fma     = cpu.X86AVX | cpu.X86FMA
	f16c    = cpu.X86AVX | cpu.X86F16C
	evexF   = cpu.X86AVX512F
	evexBW  = evexF | cpu.X86AVX512BW
	evexDQ  = evexF | cpu.X86AVX512DQ
)

// x86Rows has every vector instruction that generators use.
var x86Rows = []x86Row{
	{cpu.X86AVX, cpu.X86AVX, evexF, `VADDPD VADDPS VCMPPD VCMPPS VCVTDQ2PD VCVTDQ2PS VCVTPD2PS VCVTPD2PSY VCVTPS2DQ VCVTPS2PD VCVTTPS2DQ
		VDIVPS VMAXPS VMINPS VMOVAPD VMOVAPS VMOVNTDQ VMOVNTPS VMOVUPD VMOVUPS VMULPD VMULPS VPERMILPD VPERMILPS VSHUFPS
		VSQRTPS VSUBPD VSUBPS VUNPCKHPD VUNPCKHPS VUNPCKLPD VUNPCKLPS VBROADCASTSS VBROADCASTSD`},
	{cpu.X86AVX, cpu.X86AVX, evexDQ, "VANDPS VORPS VXORPS"},
	{cpu.X86AVX, cpu.X86AVX, 0, `VZEROUPPER VROUNDPD VBLENDPS VBLENDVPS VHADDPS VPTEST VMOVMSKPS VMOVDQA VMOVDQU VPERM2F128 VEXTRACTF128
		VINSERTF128`},
	{cpu.X86AVX, 0, evexF, "VADDSD VADDSS VDIVSS VMOVD VMOVQ VMOVSD VMOVSS"},
	{cpu.X86AVX, 0, evexDQ, "VPEXTRD"},
	{cpu.X86AVX, avx2Set, evexF, `VPABSD VPADDD VPADDQ VPCMPEQD VPCMPGTD VPMAXSD VPMAXUD VPMINSD VPMOVSXBD VPMOVSXDQ VPMOVSXWD VPMOVZXBD
		VPMOVZXBQ VPMOVZXWD VPMULUDQ VPSHUFD VPSLLD VPSLLQ VPSRAD VPSRLD VPSRLQ VPSUBD VPSUBQ VPUNPCKHDQ VPUNPCKHQDQ
		VPUNPCKLDQ VPUNPCKLQDQ`},
	{cpu.X86AVX, avx2Set, evexBW, `VPABSB VPACKSSDW VPACKSSWB VPACKUSDW VPACKUSWB VPADDB VPADDW VPCMPEQB VPCMPEQW VPCMPGTB VPCMPGTW VPMADDUBSW
		VPMADDWD VPMAXSB VPMAXSW VPMAXUB VPMAXUW VPMINSB VPMINUB VPMINUW VPMOVSXBW VPMOVZXBW VPMULHW VPMULLW VPSHUFB VPSLLW VPSRAW VPSRLDQ VPSRLW
		VPSUBB VPSUBUSB VPSUBUSW VPSUBW VPUNPCKHBW VPUNPCKHWD VPUNPCKLBW VPUNPCKLWD`},
	{cpu.X86AVX, avx2Set, 0, "VPAND VPANDN VPBLENDVB VPHADDD VPMOVMSKB VPOR VPSIGNB VPXOR"},
	{avx2Set, avx2Set, evexF, "VPBROADCASTD VPBROADCASTQ VPSLLVD VPSRLVD"},
	{avx2Set, avx2Set, evexBW, "VPBROADCASTB VPBROADCASTW"},
	{avx2Set, avx2Set, 0, "VPBLENDD"},
	{0, avx2Set, evexF, "VGATHERDPS VPERMD VPERMPD VPERMPS VPERMQ"},
	{0, avx2Set, 0, "VBROADCASTI128 VEXTRACTI128 VINSERTI128 VPERM2I128"},
	{fma, fma, evexF, "VFMADD132PS VFMADD213PD VFMADD213PS VFMADD231PD VFMADD231PS VFMSUB213PS VFNMADD231PS VFNMADD213PS"},
	{f16c, f16c, evexF, "VCVTPH2PS"},
	{0, 0, evexF, `KANDW KMOVW KNOTW KORTESTW KORW KXNORW KXORW VBROADCASTI32X4 VEXTRACTF32X4 VEXTRACTF64X4 VEXTRACTI32X4
		VEXTRACTI64X4 VINSERTF64X4 VINSERTI32X4 VINSERTI64X4 VMOVDQA32 VMOVDQA64 VMOVDQU32 VMOVDQU64 VPANDD VPANDND
		VPANDNQ VPANDQ VPBLENDMD VPCMPD VPCMPUD VPERMI2D VPMOVDB VPMOVDW VPORD VPORQ VPSRAQ VPTERNLOGD VPTESTMD VPTESTNMD
		VPXORD VPXORQ VRNDSCALEPD VSCALEFPD VSCALEFPS VSHUFF64X2 VSHUFI32X4`},
	{0, 0, evexBW, `KMOVD KMOVQ KNOTQ KORQ KSHIFTLQ KSHIFTRQ KXNORQ KXORQ VMOVDQU16 VMOVDQU8 VPCMPUB VPERMW VPMOVB2M VPMOVM2B VPMOVWB
		VPTESTMB VPTESTMW`},
	{0, 0, evexDQ, "KMOVB VPMOVD2M VRANGEPS"},
	{0, 0, evexF | cpu.X86AVX512VBMI, "VPERMB VPERMI2B VPERMT2B VPMULTISHIFTQB"},
	{0, 0, evexF | cpu.X86AVX512VNNI, "VPDPBUSD"},
	{avx2Set | cpu.X86AVXVNNI, avx2Set | cpu.X86AVXVNNI, 0, vexDot},
	{0, 0, evexF | cpu.X86AVX512BF16, "VDPBF16PS VCVTNE2PS2BF16 VCVTNEPS2BF16"},
	{cpu.X86AMXTile, 0, 0, "LDTILECFG TILELOADD TILELOADDT1 TILERELEASE TILESTORED TILEZERO"},
	{cpu.X86AMXTile | cpu.X86AMXBF16, 0, 0, "TDPBF16PS"},
	{cpu.X86BMI2, 0, 0, "BZHIQ"},
	{cpu.X86POPCNT, 0, 0, "POPCNTL"},
}

// x86Scalar are the instructions on general registers that every amd64 processor has, and those of
// SSE. Jumps do not pass Func.I.
const x86Scalar = `ADDQ ANDL ANDQ BTCQ CALL CMOVQHI CMOVQLT CMPB CMPL CMPQ IMULQ LDMXCSR LEAQ MOVB MOVL MOVQ MOVWLZX NEGL ORL ORQ PREFETCHT0
	PREFETCHT1 RET RORQ SBBL SETNE SFENCE SHLQ SHRL SHRQ STMXCSR SUBL SUBQ TESTQ XCHGQ XORL XORQ`

// x86Features indexes the rows by mnemonic.
var x86Features = func() map[string]x86Row {
	all := map[string]x86Row{}
	for _, row := range append(x86Rows, x86Row{mnemonics: x86Scalar}) {
		for _, m := range strings.Fields(row.mnemonics) {
			if _, twice := all[m]; twice {
				panic("asm: two rows of x86Rows have " + m)
			}
			all[m] = row
		}
	}
	return all
}()

// x86Needs returns the features that an instruction of amd64 needs in the form that Go's assembler
// chooses: VEX where the operands allow it.
func x86Needs(mnemonic string, operands []any) cpu.Set {
	name, suffixes, _ := strings.Cut(mnemonic, ".")
	row, known := x86Features[name]
	if !known {
		panic(fmt.Sprintf("asm: no row of x86Rows has %s: add it with the features of its forms", name))
	}
	if row.x|row.y|row.evex == 0 { // a scalar instruction
		return 0
	}
	var widest byte
	extended := suffixes != "" || row.x|row.y == 0 // encoded with EVEX
	mask := strings.HasPrefix(name, "K")
	general, memory, register := false, false, false
	for i, o := range operands {
		switch o := o.(type) {
		case Vec:
			widest = max(widest, o.width) // X < Y < Z
			extended = extended || o.width == 'Z' || o.number > 15
			register = register || i == 0
		case Mask:
			extended = extended || !mask
		case Reg:
			general = true
		case Mem, Sym:
			memory = true
		}
	}
	_, immediate := operandAt(operands, 0).(int)
	shift := strings.HasPrefix(name, "VPS") && immediate && memory && !strings.HasPrefix(name, "VPSHUF")
	if shift || general && strings.HasPrefix(name, "VPBROADCAST") { // forms that only EVEX has
		extended = true
	}
	switch {
	case extended:
		if row.evex == 0 {
			panic(fmt.Sprintf("asm: %s %v: the instruction has no EVEX form", mnemonic, operands))
		}
		if isScalarMove := row.y == 0 && row.x != 0; !mask && widest != 'Z' && !isScalarMove {
			return row.evex | cpu.X86AVX512VL
		}
		return row.evex
	case widest == 'Y':
		if strings.HasPrefix(name, "VBROADCASTS") && register {
			return avx2Set
		}
		return row.y
	case strings.HasPrefix(name, "VBROADCASTS") && register:
		return avx2Set
	case row.x == 0:
		return row.y
	}
	return row.x
}

func operandAt(operands []any, i int) any {
	if i < len(operands) {
		return operands[i]
	}
	return nil
}

// neonNeeds returns the features that an instruction of arm64 needs: those of Advanced SIMD for vector
// instructions.
func neonNeeds(mnemonic string, operands []any) cpu.Set {
	switch mnemonic {
	case "VSDOT.S":
		return cpu.ARMASIMD | cpu.ARMDotProd
	case "VBFDOT", "VBFMMLA":
		return cpu.ARMASIMD | cpu.ARMBF16
	case "VSMMLA":
		return cpu.ARMASIMD | cpu.ARMI8MM
	}
	if strings.HasPrefix(mnemonic, "V") || strings.HasPrefix(mnemonic, "F") {
		return cpu.ARMASIMD
	}
	for _, o := range operands {
		if _, vector := o.(Neon); vector {
			return cpu.ARMASIMD
		}
	}
	return 0
}

// allNeeds returns the features that a function needs, with those of the routines that it calls.
func (fn *Func) allNeeds() cpu.Set {
	needs := fn.needs
	for _, r := range fn.calls {
		needs |= r.allNeeds()
	}
	return needs
}
