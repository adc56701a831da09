package asm

import (
	"fmt"
	"strings"
)

// missing are the AVX512_BF16 instructions that Go's assembler lacks. All are in
// opcode map 0F38 with W = 0 (Intel SDM volume 2, "EVEX.….0F38.W0").
var missing = map[string]missingOp{
	"VDPBF16PS":      {2, 0x52, true},
	"VCVTNE2PS2BF16": {3, 0x72, true},
	"VCVTNEPS2BF16":  {2, 0x72, false}, // the width is that of the source; the destination is half as wide
}

// A missingOp is an instruction without its operands.
type missingOp struct {
	prefix byte // pp: 1 = 66, 2 = F3, 3 = F2
	opcode byte
	second bool // has a second source, in the vvvv field
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
	e := evex{missingOp: op, name: fmt.Sprint(mnemonic, " ", operands)}
	for _, s := range strings.FieldsFunc(suffixes, func(r rune) bool { return r == '.' }) {
		switch s {
		case "BCST":
			e.broadcast = true
		case "Z":
			e.zeroing = true
		default:
			e.fail("unknown suffix")
		}
	}
	e.parse(operands)
	return e.bytes(), true
}

// An evex is an instruction with its operands.
type evex struct {
	missingOp
	name               string // for errors
	broadcast, zeroing bool
	mask               Mask
	dst                Vec
	vvvv               int // number of the second source
	inRegister         bool
	source             Vec // if inRegister
	memory             Mem // otherwise
	length             int // 0, 1, 2: 128, 256, 512 bits
}

func (e *evex) fail(why string) { panic("asm: " + e.name + ": " + why) }

// parse checks the operands.
func (e *evex) parse(operands []any) {
	want := 2
	if e.second {
		want = 3
	}
	var ok bool
	if len(operands) == want+1 {
		e.mask, ok = operands[want-1].(Mask)
		if !ok || e.mask < 1 || e.mask > 7 {
			e.fail("the operand before the destination must be K1 to K7")
		}
		operands = append(append([]any(nil), operands[:want-1]...), operands[want])
	}
	if len(operands) != want {
		e.fail("wrong number of operands")
	}
	if e.zeroing && e.mask == 0 {
		e.fail(".Z needs a mask")
	}
	if e.dst, ok = operands[want-1].(Vec); !ok {
		e.fail("the destination must be a vector register")
	}
	if e.second {
		v, ok := operands[1].(Vec)
		if !ok || v.width != e.dst.width {
			e.fail("the second source must be a vector register as wide as the destination")
		}
		e.vvvv = v.number
	}
	var inMemory bool
	e.source, e.inRegister = operands[0].(Vec)
	e.memory, inMemory = operands[0].(Mem)
	switch {
	case !e.inRegister && !inMemory:
		e.fail("the source must be a vector register or memory")
	case e.broadcast && !inMemory:
		e.fail(".BCST needs memory")
	}
	e.length = map[byte]int{'X': 0, 'Y': 1, 'Z': 2}[e.width()]
}

// width returns the width of the operation: that of the source if the destination is half as wide.
func (e *evex) width() byte {
	width := e.dst.width
	switch {
	case e.second:
		if e.inRegister && e.source.width != width {
			e.fail("the sources differ in width")
		}
	case e.inRegister:
		width = e.source.width
		if half := map[byte]byte{'Z': 'Y', 'Y': 'X', 'X': 'X'}[width]; half != e.dst.width {
			e.fail("the destination must be half as wide as the source")
		}
	default: // X means a source of 256 bits; one of 128 bits has the same operands
		if width = map[byte]byte{'Y': 'Z', 'X': 'Y'}[width]; width == 0 {
			e.fail("the destination must be half as wide as the source")
		}
	}
	return width
}

// bit returns bit i of a register's number.
func bit(n, i int) byte { return byte(n>>i) & 1 }

// bytes returns the code: prefix, opcode, ModR/M, SIB, displacement.
func (e *evex) bytes() []byte {
	p0 := byte(2) | (1-bit(e.dst.number, 3))<<7 | (1-bit(e.dst.number, 4))<<4 | 0x60
	p1 := byte(4) | byte(^e.vvvv&15)<<3 | e.prefix
	p2 := byte(e.length)<<5 | (1-bit(e.vvvv, 4))<<3 | byte(e.mask)
	if e.zeroing {
		p2 |= 0x80
	}
	if e.broadcast {
		p2 |= 0x10
	}
	modrm := byte(e.dst.number&7) << 3
	var tail []byte
	if e.inRegister {
		p0 &^= bit(e.source.number, 3)<<5 | bit(e.source.number, 4)<<6
		modrm |= 0xc0 | byte(e.source.number&7)
	} else {
		high, mode, address := e.address()
		p0 &^= high
		modrm |= mode
		tail = address
	}
	return append([]byte{0x62, p0, p1, p2, e.opcode, modrm}, tail...)
}

// address returns the bits of the memory operand: those of its registers in the prefix, those in
// ModR/M, and the bytes after it.
func (e *evex) address() (high, modrm byte, tail []byte) {
	m := e.memory
	base := number(m.Base)
	high = bit(base, 3) << 5
	low := byte(base & 7)
	if m.Index != "" {
		index := number(m.Index)
		if index == 4 {
			e.fail("SP cannot be an index")
		}
		high |= bit(index, 3) << 6
		scale, ok := scales[m.Scale]
		if !ok {
			e.fail("an index is scaled by 1, 2, 4 or 8")
		}
		modrm = 4
		tail = append(tail, scale<<6|byte(index&7)<<3|low)
	} else if modrm = low; low == 4 { // SP, R12: only with a SIB byte
		tail = append(tail, 0x24)
	}
	unit := 16 << e.length // of the short displacement
	if e.broadcast {
		unit = 4
	}
	switch d := m.Disp; {
	case d == 0 && low != 5: // BP, R13: only with a displacement
	case d%unit == 0 && d/unit >= -128 && d/unit <= 127:
		modrm |= 0x40
		tail = append(tail, byte(d/unit))
	default:
		modrm |= 0x80
		tail = append(tail, byte(d), byte(d>>8), byte(d>>16), byte(d>>24))
	}
	return high, modrm, tail
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
	panic(fmt.Sprintf("asm: %q is no general register", r))
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
