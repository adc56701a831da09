package asm

// AMD64 is the architecture of the x86 kernels.
var AMD64 = &Arch{
	Name:     "amd64",
	generals: amd64Generals,
	load:     "MOVQ",
	leave:    []string{"VZEROUPPER", "RET"},
	encode: func(mnemonic string, operands []any) (text string, ok bool) {
		for _, encode := range []func(string, []any) ([]byte, bool){encode, encodeTile, encodeVEXDot} {
			if code, ok := encode(mnemonic, operands); ok {
				return directives(code), true
			}
		}
		return "", false
	},
	needs: x86Needs,
}

// amd64Generals are registers with short encodings first, except CX, which shifts need.
var amd64Generals = []Reg{"AX", "BX", "DX", "SI", "DI", "CX", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}
