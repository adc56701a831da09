package asmgen

import (
	"fmt"
	"strings"
)

// evexInstructions are the AVX512_BF16 instructions that Go's assembler lacks. All are in
// opcode map 0F38 with W = 0 (Intel SDM volume 2, "EVEX.….0F38.W0").
var missing = map[string]struct {
	prefix byte // pp: 1 = 66, 2 = F3, 3 = F2
	opcode byte
	second bool // has a second source, in the vvvv field
}{
	"VDPBF16PS":      {2, 0x52, true},
	"VCVTNE2PS2BF16": {3, 0x72, true},
	"VCVTNEPS2BF16":  {2, 0x72, false}, // the width is that of the source; the destination is half as wide
}

// encode returns the bytes of an instruction of the table above; ok is false for other
// instructions. Operands are in Go's order:
//
//	source (vector or memory) [, second source] [, mask], destination
//
// The suffixes of Go's assembler apply: .BCST broadcasts a dword of memory to all lanes,
// .Z clears the lanes outside the mask.
//
//	62 | ~R ~X ~B ~R' 0 0 1 0 | W ~vvvv 1 pp | z L'L b ~V' aaa | opcode | ModRM | SIB | disp8·N or disp32
func encode(mnemonic string, operands []any) (code []byte, ok bool) {
	name, suffixes, _ := strings.Cut(mnemonic, ".")
	op, ok := missing[name]
	if !ok {
		return nil, false
	}
	fail := func(why string) { panic(fmt.Sprintf("asmgen: %s %v: %s", mnemonic, operands, why)) }
	broadcast, zeroing := false, false
	for _, s := range strings.FieldsFunc(suffixes, func(r rune) bool { return r == '.' }) {
		switch s {
		case "BCST":
			broadcast = true
		case "Z":
			zeroing = true
		default:
			fail("unknown suffix")
		}
	}
	want := 2
	if op.second {
		want = 3
	}
	mask := Mask(0)
	if len(operands) == want+1 {
		mask, ok = operands[want-1].(Mask)
		if !ok || mask < 1 || mask > 7 {
			fail("the operand before the destination must be K1 to K7")
		}
		operands = append(append([]any(nil), operands[:want-1]...), operands[want])
	}
	if len(operands) != want {
		fail("wrong number of operands")
	}
	if zeroing && mask == 0 {
		fail(".Z needs a mask")
	}
	dst, ok := operands[want-1].(Vec)
	if !ok {
		fail("the destination must be a vector register")
	}
	width, vvvv := dst.width, 0
	if op.second {
		v, ok := operands[1].(Vec)
		if !ok || v.width != dst.width {
			fail("the second source must be a vector register as wide as the destination")
		}
		vvvv = v.number
	}
	// The width of the operation: that of the source if the destination is half as wide.
	source, inRegister := operands[0].(Vec)
	memory, inMemory := operands[0].(Mem)
	switch {
	case !inRegister && !inMemory:
		fail("the source must be a vector register or memory")
	case broadcast && !inMemory:
		fail(".BCST needs memory")
	case inRegister && op.second && source.width != width:
		fail("the sources differ in width")
	case inRegister && !op.second:
		width = source.width
		if half := map[byte]byte{'Z': 'Y', 'Y': 'X', 'X': 'X'}[width]; half != dst.width {
			fail("the destination must be half as wide as the source")
		}
	case inMemory && !op.second: // X means a source of 256 bits; one of 128 bits has the same operands
		width = map[byte]byte{'Y': 'Z', 'X': 'Y'}[dst.width]
		if width == 0 {
			fail("the destination must be half as wide as the source")
		}
	}
	length := map[byte]byte{'X': 0, 'Y': 1, 'Z': 2}[width]

	bit := func(n, i int) byte { return byte(n>>i) & 1 }
	p0 := byte(2) | (1-bit(dst.number, 3))<<7 | (1-bit(dst.number, 4))<<4 | 0x60
	p1 := byte(4) | byte(^vvvv&15)<<3 | op.prefix
	p2 := length<<5 | (1-bit(vvvv, 4))<<3 | byte(mask)
	if zeroing {
		p2 |= 0x80
	}
	if broadcast {
		p2 |= 0x10
	}
	modrm := byte(dst.number&7) << 3
	var tail []byte
	if inRegister {
		p0 &^= bit(source.number, 3)<<5 | bit(source.number, 4)<<6
		modrm |= 0xc0 | byte(source.number&7)
	} else {
		base := number(memory.Base)
		p0 &^= bit(base, 3) << 5
		low := byte(base & 7)
		if memory.Index != "" {
			index := number(memory.Index)
			if index == 4 {
				fail("SP cannot be an index")
			}
			p0 &^= bit(index, 3) << 6
			scale, ok := scales[memory.Scale]
			if !ok {
				fail("an index is scaled by 1, 2, 4 or 8")
			}
			modrm |= 4
			tail = append(tail, scale<<6|byte(index&7)<<3|low)
		} else if modrm |= low; low == 4 { // SP, R12: only with a SIB byte
			tail = append(tail, 0x24)
		}
		n := 16 << length // unit of the short displacement
		if broadcast {
			n = 4
		}
		switch d := memory.Disp; {
		case d == 0 && low != 5: // BP, R13: only with a displacement
		case d%n == 0 && d/n >= -128 && d/n <= 127:
			modrm |= 0x40
			tail = append(tail, byte(d/n))
		default:
			modrm |= 0x80
			tail = append(tail, byte(d), byte(d>>8), byte(d>>16), byte(d>>24))
		}
	}
	return append([]byte{0x62, p0, p1, p2, op.opcode, modrm}, tail...), true
}

// scales maps the factor of an index to its encoding.
var scales = map[int]byte{1: 0, 2: 1, 4: 2, 8: 3}

// number returns the number of a general register in instructions.
func number(r Reg) int {
	for i, name := range []Reg{"AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"} {
		if name == r {
			return i
		}
	}
	panic(fmt.Sprintf("asmgen: %q is no general register", r))
}

// directives returns bytes as data directives of Go's assembler.
func directives(code []byte) string {
	var parts []string
	for len(code) > 0 {
		n, name := 1, "BYTE"
		if len(code) >= 4 {
			n, name = 4, "LONG"
		} else if len(code) >= 2 {
			n, name = 2, "WORD"
		}
		var v uint32
		for i := range n {
			v |= uint32(code[i]) << (8 * i)
		}
		parts = append(parts, fmt.Sprintf("%s $0x%0*x", name, 2*n, v))
		code = code[n:]
	}
	return strings.Join(parts, "; ")
}
