package mma

import "fmt"

// The table of models follows MMA-Sim 2.1.1, except FP8 mma.sync on sm_90 and sm_100. Its
// constants are
//
//	F    fraction bits of the alignment: 23 Volta, 24 Turing to Ada, 25 since
//	     Hopper, 13 for FP8 on Ada and by wgmma, 35 for FP4 with block scales
//	e₀   exponent of zero terms: -(108+F) for FP32 results and -(F-4) for FP16
//	     with the F of the 16-bit unit, and -139 for FP4 with block scales
//	group of a fused addition, in bytes of each operand: 8 Volta, 16 Turing to
//	     Ada, 32 since Hopper
var models = []*Model{
	{Name: "volta-mma", Device: "NVIDIA Volta (sm_70)", Evidence: recorded + "V100", modes: []mode{
		{types: []*Type{f16}, rules: either(4, 23, -131, -19, rz23), instructions: mmaSync("m8n8k4")}}},
	{Name: "turing-mma", Device: "NVIDIA Turing (sm_75)", Evidence: simulated, modes: []mode{
		{types: []*Type{f16}, rules: either(8, 24, -132, -20, rz23), instructions: mmaSync("m16n8k8")}}},
	{Name: "ampere-mma", Device: "NVIDIA Ampere (sm_80, sm_86)", Evidence: recorded + "A100 and A2", modes: mmaSyncModes(16, 24, -132, -20)},
	{Name: "ada-mma", Device: "NVIDIA Ada (sm_89)", Evidence: recorded + "L40S and another Ada GPU",
		modes: append(mmaSyncModes(16, 24, -132, -20),
			mode{types: fp8, mixed: true, rules: either(16, 13, -132, -20, rz13), instructions: mmaSync("m16n8k32", "m16n8k16")})},
	{Name: "hopper-mma", Device: "NVIDIA Hopper (sm_90)", Evidence: recorded + "H100 and H200", modes: append(sm90Modes(), emulatedFP8)},
	{Name: "blackwell-mma", Device: "NVIDIA Blackwell, data center (sm_100)", Evidence: recorded + "B200",
		modes: append(sm90Modes(), emulatedFP8)},
	{Name: "rtxblackwell-mma", Device: "NVIDIA Blackwell, RTX (sm_120)", Evidence: simulated, modes: append(sm90Modes(),
		mode{types: fp8, mixed: true, rules: either(32, 25, -133, -21, rz23), instructions: append(mmaSync("m16n8k32", "m16n8k16"),
			mmaKind("m16n8k32", "f8f6f4", "")...)},
		mode{types: five, mixed: true, rules: either(32, 25, -133, -21, rz23), instructions: mmaKind("m16n8k32", "f8f6f4", "")})},
	{Name: "hopper-wgmma", Device: "NVIDIA Hopper (sm_90a)", Evidence: recorded + "H100 and H200 (FP8 to FP32, C = 0)", modes: []mode{
		{types: []*Type{f16}, rules: either(16, 25, -133, -21, rz23), instructions: wgmma(16)},
		{types: []*Type{bf16}, rules: single(16, 25, -133), instructions: wgmma(16)},
		{types: []*Type{tf32}, rules: single(8, 25, -133), instructions: wgmma(8)},
		{types: fp8, mixed: true, rules: either(32, 13, -133, -21, rz13), instructions: wgmma(32)}}},
	{Name: "blackwell-f16", Device: "NVIDIA Blackwell, data center (sm_100a)", Evidence: simulated, modes: []mode{
		{types: []*Type{f16}, rules: either(16, 25, -133, -21, rz23), instructions: tcgen05(16, "f16")},
		{types: []*Type{bf16}, rules: single(16, 25, -133), instructions: tcgen05(16, "f16")}}},
	{Name: "blackwell-tf32", Device: "NVIDIA Blackwell, data center (sm_100a)", Evidence: simulated, modes: []mode{
		{types: []*Type{tf32}, rules: single(8, 25, -133), instructions: tcgen05(8, "tf32")}}},
	{Name: "blackwell-f8f6f4", Device: "NVIDIA Blackwell, data center (sm_100a)", Evidence: simulated, modes: []mode{
		{types: five, mixed: true, rules: either(32, 25, -133, -21, rz23), instructions: tcgen05(32, "f8f6f4")}}},
	{Name: "blackwell-mxf8f6f4", Device: "NVIDIA Blackwell (sm_100a, sm_120a)", Evidence: simulated, modes: []mode{
		{types: five, mixed: true, scales: []*Type{ue8m0}, block: 32, rules: single(32, 25, -133),
			instructions: append(tcgen05(32, "mxf8f6f4.block_scale.block32"), mmaKind("m16n8k32", "mxf8f6f4.block_scale.scale_vec::1X",
				".{s}")...)}}},
	{Name: "blackwell-mxf4", Device: "NVIDIA Blackwell (sm_100a, sm_120a)", Evidence: simulated, modes: []mode{
		{types: []*Type{e2m1}, scales: []*Type{ue8m0}, block: 32, rules: dots,
			instructions: append(tcgen05(64, "mxf4.block_scale.block32"), mmaKind("m16n8k64", "mxf4.block_scale.scale_vec::2X", ".{s}")...)}}},
	{Name: "blackwell-mxf4nvf4", Device: "NVIDIA Blackwell (sm_100a, sm_120a)", Evidence: simulated, modes: []mode{
		{types: []*Type{e2m1}, scales: []*Type{ue4m3, ue8m0}, block: 16, rules: dots,
			instructions: append(tcgen05(64, "mxf4nvf4.block_scale.block16"), mmaKind("m16n8k64", "mxf4nvf4.block_scale.scale_vec::4X",
				".{s}")...)}}},

	{Name: "cdna1-mfma", Device: "AMD CDNA1 (gfx908)", Evidence: simulated, modes: []mode{
		{types: []*Type{f32}, rules: only(f32, chain{f32}), instructions: mfma("f32", "f32", "16x16x4", "32x32x2", "32x32x1", "16x16x1",
			"4x4x1")},
		{types: []*Type{f16}, rules: only(f32, exact{4}), instructions: mfma("f32", "f16", "16x16x16", "32x32x8", "32x32x4", "16x16x4", "4x4x4")},
		{types: []*Type{bf16}, rules: only(f32, exact{2}), instructions: mfma("f32", "bf16", "16x16x8", "32x32x4", "32x32x2", "16x16x2",
			"4x4x2")}}},
	{Name: "cdna2-mfma", Device: "AMD CDNA2 (gfx90a)", Evidence: simulated, modes: []mode{
		{types: []*Type{f64}, rules: only(f64, chain{f64}), instructions: mfma("f64", "f64", "16x16x4", "4x4x4")},
		{types: []*Type{f32}, rules: only(f32, chain{f32}), instructions: mfma("f32", "f32", "16x16x4", "32x32x2", "32x32x1", "16x16x1",
			"4x4x1")},
		{types: []*Type{f16}, rules: only(f32, tree{4}), instructions: mfma("f32", "f16", "16x16x16", "32x32x8", "32x32x4", "16x16x4", "4x4x4")},
		{types: []*Type{bf16}, rules: only(f32, tree{2}), instructions: mfma("f32", "bf16", "16x16x8", "32x32x4", "32x32x2", "16x16x2",
			"4x4x2")}}},
	{Name: "cdna2-mfma-1k", Device: "AMD CDNA2 (gfx90a)", Evidence: simulated, modes: []mode{
		{types: []*Type{bf16}, rules: only(f32, tree{4}), instructions: mfma("f32", "bf16_1k", "16x16x16", "32x32x8", "32x32x4", "16x16x4",
			"4x4x4")}}},
	{Name: "cdna3-mfma", Device: "AMD CDNA3 (gfx942)", Evidence: simulated, modes: []mode{
		{types: []*Type{f64}, rules: only(f64, chain{f64}), instructions: mfma("f64", "_f64", "16x16x4", "4x4x4_4b")},
		{types: []*Type{f32}, rules: only(f32, chain{f32}), instructions: mfma("f32", "_f32", "16x16x4", "32x32x2", "32x32x1_2b", "16x16x1_4b",
			"4x4x1_16b")},
		{types: []*Type{tf32}, rules: only(f32, cdna3{products: 4}), instructions: mfma("f32", "_xf32", "16x16x8", "32x32x4")},
		{types: []*Type{f16}, rules: only(f32, cdna3{products: 8}), instructions: mfma("f32", "_f16", "16x16x16", "32x32x8", "32x32x4_2b",
			"16x16x4_4b", "4x4x4_16b")},
		{types: []*Type{bf16}, rules: only(f32, cdna3{products: 8}), instructions: mfma("f32", "_bf16", "16x16x16", "32x32x8", "32x32x4_2b",
			"16x16x4_4b", "4x4x4_16b")},
		{types: []*Type{e4m3fnuz, e5m2fnuz}, mixed: true, rules: only(f32, cdna3{products: 16, halves: true}),
			instructions: mfma("f32", "_{a}_{b}", "32x32x16", "16x16x32")}}},
	{Name: "cdna4-mfma-scale", Device: "AMD CDNA4 (gfx950)", Evidence: "unvalidated: CDNA3's FP8 rule with scales", modes: []mode{
		{types: five, mixed: true, scales: []*Type{ue8m0}, block: 32, rules: only(f32, cdna3{products: 32, halves: true}),
			instructions: mfma("scale_f32", "_f8f6f4", "16x16x128", "32x32x64")}}},
}

const (
	simulated = "MMA-Sim"
	recorded  = "MMA-Sim; outputs recorded on "
)

var (
	fp8  = []*Type{e4m3, e5m2}
	five = []*Type{e4m3, e5m2, e3m2, e2m3, e2m1}
	dots = only(f32, fusedFP4{fused{64, 35, -139, rz23}})
)

// mmaSyncModes returns the 16-bit, TF32 and FP64 modes of mma.sync since Ampere. A fused addition
// has the given bytes of each operand.
func mmaSyncModes(bytes, fraction, zero, zeroHalf int) []mode {
	return []mode{
		{types: []*Type{f16}, rules: either(bytes/f16.Bytes, fraction, zero, zeroHalf, rz23), instructions: mmaSync("m16n8k16", "m16n8k8")},
		{types: []*Type{bf16}, rules: single(bytes/bf16.Bytes, fraction, zero), instructions: mmaSync("m16n8k16", "m16n8k8")},
		{types: []*Type{tf32}, rules: single(bytes/tf32.Bytes, fraction, zero), instructions: mmaSync("m16n8k8", "m16n8k4")},
		{types: []*Type{f64}, rules: only(f64, chain{f64}), instructions: mmaSync("m8n8k4")},
	}
}

// sm90Modes returns these modes since Hopper, which has more FP64 shapes.
func sm90Modes() []mode {
	modes := mmaSyncModes(32, 25, -133, -21)
	wide := &modes[len(modes)-1]
	wide.instructions = append(wide.instructions, mmaSync("m16n8k4", "m16n8k8", "m16n8k16")...)
	return modes
}

// emulatedFP8 is mma.sync with FP8 operands on sm_90 and sm_100.
var emulatedFP8 = mode{types: fp8, mixed: true, instructions: mmaSync("m16n8k32"), rules: []outputRule{
	{f32, emulated{fused{32, 25, -133, rz23}}}, {f16, emulated{fused{32, 25, -21, rne16}}}}}

func only(out *Type, r rule) []outputRule { return []outputRule{{out, r}} }

// single returns the rule of a unit with FP32 results.
func single(products, fraction, zero int) []outputRule {
	return only(f32, fused{products, fraction, zero, rz23})
}

// either returns the rules of a unit with FP32 results, rounded by r, or FP16 results.
func either(products, fraction, zero, zeroHalf int, r rounding) []outputRule {
	return []outputRule{{f32, fused{products, fraction, zero, r}}, {f16, fused{products, fraction, zeroHalf, rne16}}}
}

func mmaSync(shapes ...string) []instruction {
	var list []instruction
	for _, s := range shapes {
		list = append(list, instruction{lastK(s), "mma.sync.aligned." + s + ".row.col.{d}.{a}.{b}.{d}"})
	}
	return list
}

// mmaKind returns mma.sync with a kind, for sm_120. suffix follows the types.
func mmaKind(shape, kind, suffix string) []instruction {
	return []instruction{{lastK(shape), "mma.sync.aligned." + shape + ".row.col.kind::" + kind + ".{d}.{a}.{b}.{d}" + suffix}}
}

func wgmma(k int) []instruction {
	return []instruction{{k, fmt.Sprintf("wgmma.mma_async.sync.aligned.m64nNk%d.{d}.{a}.{b}", k)}}
}

func tcgen05(k int, kind string) []instruction {
	return []instruction{{k, "tcgen05.mma.cta_group::1.kind::" + kind}}
}

func mfma(out, operands string, shapes ...string) []instruction {
	var list []instruction
	for _, s := range shapes {
		list = append(list, instruction{lastK(s), "v_mfma_" + out + "_" + s + operands})
	}
	return list
}

// lastK returns the K of a shape: 16 of "m16n8k16", "16x16x16" and "4x4x16_4b".
func lastK(shape string) int {
	var m, n, k int
	layout := "%dx%dx%d"
	if shape[0] == 'm' {
		layout = "m%dn%dk%d"
	}
	if _, err := fmt.Sscanf(shape, layout, &m, &n, &k); err != nil {
		panic(err)
	}
	return k
}
