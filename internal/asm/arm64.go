package asm

import (
	"fmt"
	"strings"
)

// ARM64 is the architecture of the NEON kernels. Go reserves R18, R26 to R30, and R16 and R17
// for calls between far functions.
var ARM64 = &Arch{
	Name: "arm64",
	generals: []Reg{"R0", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
		"R19", "R20", "R21", "R22", "R23", "R24", "R25"},
	load:   "MOVD",
	leave:  []string{"RET"},
	encode: encodeNEON,
	needs:  neonNeeds,
}

// RSP is the stack pointer; the frame of a function starts at RSP.At(8), after the return
// address.
const RSP Reg = "RSP"

// A Neon is a vector register of arm64 with an arrangement of lanes.
type Neon struct {
	number  int
	lanes   string // B16, H8, S4, D2; B8, H4, S2 for half of the register
	element string // "[i]": only lane i
}

// V returns the vector register Vi.
func V(i int) Neon { return Neon{number: i} }

// lane returns lane i of the register as an operand of an instruction by element.
func (v Neon) lane(i int) Neon { return Neon{v.number, v.lanes, fmt.Sprintf("[%d]", i)} }

// B16 returns the register as 16 bytes.
func (v Neon) B16() Neon { return Neon{number: v.number, lanes: "B16"} }

// B8 returns the lower half of the register as 8 bytes.
func (v Neon) B8() Neon { return Neon{number: v.number, lanes: "B8"} }

// H8 returns the register as 8 elements of 16 bits.
func (v Neon) H8() Neon { return Neon{number: v.number, lanes: "H8"} }

// H4 returns the lower half of the register as 4 elements of 16 bits.
func (v Neon) H4() Neon { return Neon{number: v.number, lanes: "H4"} }

// S4 returns the register as 4 elements of 32 bits.
func (v Neon) S4() Neon { return Neon{number: v.number, lanes: "S4"} }

// S2 returns the lower half of the register as 2 elements of 32 bits.
func (v Neon) S2() Neon { return Neon{number: v.number, lanes: "S2"} }

// D2 returns the register as 2 elements of 64 bits.
func (v Neon) D2() Neon { return Neon{number: v.number, lanes: "D2"} }

// String returns the register in Go's syntax.
func (v Neon) String() string {
	if v.lanes == "" {
		return fmt.Sprintf("V%d", v.number)
	}
	if v.element != "" {
		return fmt.Sprintf("V%d.%c%s", v.number, v.lanes[0], v.element)
	}
	return fmt.Sprintf("V%d.%s", v.number, v.lanes)
}

// list returns registers as an operand of a load, store or table lookup: [V0.B16, V1.B16].
func list(regs ...Neon) string {
	names := make([]string, len(regs))
	for i, r := range regs {
		names[i] = r.String()
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// post returns the memory at r as an operand of an instruction with the suffix .P, which advances
// r by n bytes.
func (r Reg) post(n int) string { return fmt.Sprintf("%d(%s)", n, r) }

// The forms of the instructions below (Arm Architecture Reference Manual, C4.1, "Advanced SIMD"):
//
//	same   0 Q U 01110 size 1 Rm opcode 1 Rn Rd       three registers
//	misc   0 Q U 01110 size 10000 opcode 10 Rn Rd     two registers
//	across 0 Q U 01110 size 11000 opcode 10 Rn Rd     all lanes of a register to a scalar
//	shift  0 Q U 011110 immh:immb opcode 1 Rn Rd      by a constant, to the left
//	right  the same                                  immh:immb is 2·bits minus the constant
//	lane   0 Q U 01111 size L M Rm opcode H 0 Rn Rd   by lane H:L of M:Rm
//	long   0 Q U 01110 size 1 Rm opcode 00 Rn Rd       three registers, of which the last has lanes of twice the size
//	matrix 0 Q U 01110 size 0 Rm opcode 1 Rn Rd       three registers, of two rows each
type neonForm int

const (
	neonSame neonForm = iota
	neonMisc
	neonAcross
	neonShift
	neonRight
	neonLane
	neonLong
	neonMatrix
)

// neonInstructions are those that Go's assembler lacks, with V before Arm's name. size is -1
// if it follows from the lanes of the first operand, or of the last if they are narrower; otherwise it is
// that of float32, and one more for float64.
var neonInstructions = map[string]struct {
	form   neonForm
	u      uint32
	opcode uint32
	size   int
	second bool // the instruction uses the upper half of its narrow operand
}{
	"VFADD":    {neonSame, 0, 0b11010, 0, false},
	"VFADDP":   {neonSame, 1, 0b11010, 0, false},
	"VFSUB":    {neonSame, 0, 0b11010, 2, false},
	"VFABS":    {neonMisc, 0, 0b01111, 2, false},
	"VFCMGT":   {neonSame, 1, 0b11100, 2, false},
	"VFCMEQ":   {neonSame, 0, 0b11100, 0, false},
	"VFCVTZS":  {neonMisc, 0, 0b11011, 2, false},
	"VFRINTZ":  {neonMisc, 0, 0b11001, 2, false},
	"VFCVTN":   {neonMisc, 0, 0b10110, 0, false},
	"VFCVTN2":  {neonMisc, 0, 0b10110, 0, true},
	"VFSQRT":   {neonMisc, 1, 0b11111, 2, false},
	"VUMULL":   {neonLong, 1, 0b1100, -1, false},
	"VUMULL2":  {neonLong, 1, 0b1100, -1, true},
	"VFCVTNS":  {neonMisc, 0, 0b11010, 0, false},
	"VSQXTN":   {neonMisc, 0, 0b10100, -1, false},
	"VSQXTN2":  {neonMisc, 0, 0b10100, -1, true},
	"VCMHI":    {neonSame, 1, 0b00110, -1, false},
	"VSSHR":    {neonRight, 0, 0b00000, -1, false},
	"VFCMGT.0": {neonMisc, 0, 0b01100, 2, false}, // than zero
	"VFCMEQ.0": {neonMisc, 0, 0b01101, 2, false},
	"VSMAX":    {neonSame, 0, 0b01100, -1, false},
	"VSMIN":    {neonSame, 0, 0b01101, -1, false},
	"VSMAXV":   {neonAcross, 0, 0b01010, -1, false},
	"VFMUL":    {neonSame, 1, 0b11011, 0, false},
	"VFDIV":    {neonSame, 1, 0b11111, 0, false},
	"VFMAX":    {neonSame, 0, 0b11110, 0, false},
	"VFMIN":    {neonSame, 0, 0b11110, 2, false},
	"VUSHL":    {neonSame, 1, 0b01000, -1, false},
	"VMUL":     {neonSame, 0, 0b10011, -1, false},
	"VSSHLL":   {neonShift, 0, 0b10100, -1, false},
	"VSSHLL2":  {neonShift, 0, 0b10100, -1, true},
	"VSCVTF":   {neonMisc, 0, 0b11101, 0, false},
	"VSCVTF.X": {neonRight, 0, 0b11100, -1, false}, // of fixed-point numbers
	"VSQDMULH": {neonSame, 0, 0b10110, -1, false},
	"VFMLA.S":  {neonLane, 0, 0b0001, 2, false},
	"VSDOT.S":  {neonLane, 0, 0b1110, 2, false},
	"VSMMLA":   {neonMatrix, 0, 0b10100, 2, false},
	"VBFMMLA":  {neonMatrix, 1, 0b11101, 1, false},
	"VBFDOT":   {neonMatrix, 1, 0b11111, 1, false},
	"VFMUL.S":  {neonLane, 0, 0b1001, 2, false},
	"VFCVTL":   {neonMisc, 0, 0b10111, 0, false},
	"VFCVTL2":  {neonMisc, 0, 0b10111, 0, true},
	"VUMAXV":   {neonAcross, 1, 0b01010, -1, false},
}

// neonLanes lists the size field, and whether all 128 bits are used, of the arrangements.
var neonLanes = map[string]struct {
	size int
	full uint32
}{
	"B8": {0, 0}, "B16": {0, 1}, "H4": {1, 0}, "H8": {1, 1}, "S2": {2, 0}, "S4": {2, 1}, "D2": {3, 1},
}

// size returns the size field of the lanes of v.
func (v Neon) size() int { return neonLanes[v.lanes].size }

// encodeNEON returns an instruction of the table above.
func encodeNEON(mnemonic string, operands []any) (text string, ok bool) {
	op, ok := neonInstructions[mnemonic]
	if !ok {
		return "", false
	}
	fail := func(why string) { panic(fmt.Sprintf("asm: %s %v: %s", mnemonic, operands, why)) }
	shift := 0
	if op.form == neonShift || op.form == neonRight {
		if shift, ok = operands[0].(int); !ok {
			fail("want a constant first")
		}
		operands = operands[1:]
	}
	three := op.form == neonSame || op.form == neonLane || op.form == neonLong || op.form == neonMatrix
	if want := map[bool]int{true: 3, false: 2}[three]; len(operands) != want {
		fail(fmt.Sprintf("got %d registers, want %d", len(operands), want))
	}
	var regs []uint32
	double := false
	narrow := -1 // the operand with the narrowest lanes
	for i, o := range operands {
		r, ok := o.(Neon)
		lanes, known := neonLanes[r.lanes]
		double = double || r.lanes == "D2"
		if !ok || !known || (r.element != "") != (op.form == neonLane && i == 0) {
			fail("want vector registers with lanes")
		}
		regs = append(regs, uint32(r.number))
		if narrow < 0 || lanes.size < neonLanes[operands[narrow].(Neon).lanes].size {
			narrow = i
		}
	}
	lanes := neonLanes[operands[narrow].(Neon).lanes]
	converts := op.form == neonShift || op.form == neonLong || op.form == neonMisc && operands[0].(Neon).size() != operands[1].(Neon).size()
	if converts && op.second != (lanes.full == 1) {
		fail("the narrow operand is the wrong half")
	}
	size := uint32(lanes.size)
	if op.size >= 0 {
		if size = uint32(op.size); double {
			size++
		}
	}
	word := lanes.full<<30 | op.u<<29 | regs[len(regs)-1]
	switch op.form {
	case neonSame:
		word |= 0b01110<<24 | size<<22 | 1<<21 | regs[0]<<16 | op.opcode<<11 | 1<<10 | regs[1]<<5
	case neonLong:
		word |= 0b01110<<24 | size<<22 | 1<<21 | regs[0]<<16 | op.opcode<<12 | regs[1]<<5
	case neonMatrix:
		word |= 0b01110<<24 | size<<22 | regs[0]<<16 | op.opcode<<11 | 1<<10 | regs[1]<<5
	case neonMisc:
		word |= 0b01110<<24 | size<<22 | 0b10000<<17 | op.opcode<<12 | 0b10<<10 | regs[0]<<5
	case neonAcross:
		word |= 0b01110<<24 | size<<22 | 0b11000<<17 | op.opcode<<12 | 0b10<<10 | regs[0]<<5
	case neonShift:
		bits := 8 << size
		if shift < 0 || shift >= bits {
			fail("the shift is out of range")
		}
		word |= 0b011110<<23 | uint32(bits+shift)<<16 | op.opcode<<11 | 1<<10 | regs[0]<<5
	case neonRight:
		bits := 8 << size
		if shift <= 0 || shift > bits {
			fail("the shift is out of range")
		}
		word |= 0b011110<<23 | uint32(2*bits-shift)<<16 | op.opcode<<11 | 1<<10 | regs[0]<<5
	case neonLane:
		lane := uint32(operands[0].(Neon).element[1] - '0')
		word |= 0b01111<<24 | size<<22 | lane&1<<21 | regs[0]<<16 | op.opcode<<12 | lane>>1<<11 | regs[1]<<5
	}
	return fmt.Sprintf("WORD $0x%08x", word), true
}
