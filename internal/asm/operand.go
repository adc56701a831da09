package asm

import "fmt"

// A Reg is a general register, by its name in Go's assembler.
type Reg string

// SP is the stack pointer; the frame of a function starts at SP.At(0).
const SP Reg = "SP"

// A Vec is a vector register of amd64, of 128, 256 or 512 bits.
type Vec struct {
	width  byte // 'X', 'Y' or 'Z'
	number int
}

// X returns the vector register Xi.
func X(i int) Vec { return Vec{'X', i} }

// Y returns the vector register Yi.
func Y(i int) Vec { return Vec{'Y', i} }

// Z returns the vector register Zi.
func Z(i int) Vec { return Vec{'Z', i} }

// X returns the low 128 bits of v.
func (v Vec) X() Vec { return Vec{'X', v.number} }

// Y returns the low 256 bits of v.
func (v Vec) Y() Vec { return Vec{'Y', v.number} }

// Z returns all 512 bits of the register of v.
func (v Vec) Z() Vec { return Vec{'Z', v.number} }

// String returns Go's name of the register.
func (v Vec) String() string { return fmt.Sprintf("%c%d", v.width, v.number) }

// A Mask is a mask register.
type Mask int

// K returns the mask register Ki.
func K(i int) Mask { return Mask(i) }

// String returns Go's name of the register.
func (k Mask) String() string { return fmt.Sprintf("K%d", int(k)) }

// A Mem is a memory operand: disp(base)(index*scale).
type Mem struct {
	Base  Reg
	Disp  int
	Index Reg // "" for none
	Scale int
}

// At returns the memory disp bytes past r.
func (r Reg) At(disp int) Mem { return Mem{Base: r, Disp: disp} }

// By returns m with index·scale added to its address.
func (m Mem) By(index Reg, scale int) Mem {
	m.Index, m.Scale = index, scale
	return m
}

// At returns the memory disp bytes past m.
func (m Mem) At(disp int) Mem {
	m.Disp += disp
	return m
}

// String returns the operand in Go's syntax.
func (m Mem) String() string {
	s := fmt.Sprintf("(%s)", m.Base)
	if m.Disp != 0 {
		s = fmt.Sprintf("%d%s", m.Disp, s)
	}
	if m.Index != "" {
		s += fmt.Sprintf("(%s*%d)", m.Index, m.Scale)
	}
	return s
}

// A Sym is a position in a table of the same file.
type Sym struct {
	Name   string
	Offset int
}

// At returns the position disp bytes past s.
func (s Sym) At(disp int) Sym { return Sym{s.Name, s.Offset + disp} }

// String returns the operand in Go's syntax.
func (s Sym) String() string { return fmt.Sprintf("%s<>+%d(SB)", s.Name, s.Offset) }
