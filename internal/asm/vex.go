package asm

import "fmt"

// A Tile is a tile register of AMX.
type Tile int

// T returns the tile register TMMi.
func T(i int) Tile { return Tile(i) }

// String returns the register's name.
func (t Tile) String() string { return fmt.Sprintf("TMM%d", int(t)) }

// tileInstructions are the AMX instructions, which Go's assembler lacks. All are in opcode
// map 0F38 with W = 0 and 128 bits (Intel SDM volume 2, "VEX.128.….0F38.W0").
var tileInstructions = map[string]struct {
	prefix   byte // pp: 1 = 66, 2 = F3, 3 = F2
	opcode   byte
	operands string // in Go's order, destination last: m memory, t tile
}{
	"LDTILECFG":   {0, 0x49, "m"},
	"TILERELEASE": {0, 0x49, ""},
	"TILEZERO":    {3, 0x49, "t"},
	"TILELOADD":   {3, 0x4b, "mt"}, // the index is the stride of the rows
	"TILELOADDT1": {1, 0x4b, "mt"}, // with a hint not to keep the data in the first-level cache
	"TILESTORED":  {2, 0x4b, "tm"},
	"TDPBF16PS":   {2, 0x5c, "ttt"}, // B, A, C
}

// encodeTile returns the bytes of an instruction of the table above; ok is false for other
// instructions.
//
//	c4 | ~R ~X ~B 0 0 0 1 0 | W ~vvvv 0 pp | opcode | ModRM | SIB | disp8 or disp32
func encodeTile(mnemonic string, operands []any) (code []byte, ok bool) {
	op, ok := tileInstructions[mnemonic]
	if !ok {
		return nil, false
	}
	fail := func(why string) { panic(fmt.Sprintf("asm: %s %v: %s", mnemonic, operands, why)) }
	var tiles []int
	var memory *Mem
	kinds := ""
	for _, o := range operands {
		switch o := o.(type) {
		case Tile:
			if o < 0 || o > 7 {
				fail("there are tiles 0 to 7")
			}
			tiles = append(tiles, int(o))
			kinds += "t"
		case Mem:
			memory = &o
			kinds += "m"
		}
	}
	if kinds != op.operands || len(kinds) != len(operands) {
		fail("these are not the operands of the instruction")
	}
	register, rm, vvvv := 0, 0, 0
	switch len(tiles) {
	case 1:
		register = tiles[0]
	case 3:
		vvvv, rm, register = tiles[0], tiles[1], tiles[2]
		if vvvv == rm || rm == register || register == vvvv {
			fail("the tiles must differ")
		}
	}
	p0 := byte(0xe2)
	modrm := 0xc0 | byte(register)<<3 | byte(rm)
	var tail []byte
	if memory != nil {
		base, index, scale := number(memory.Base), 4, byte(0) // no index
		if indexed := memory.Index != ""; indexed != (len(tiles) == 1) {
			fail("tiles in memory need an index, and nothing else has one")
		} else if indexed {
			var ok bool
			if scale, ok = scales[memory.Scale]; !ok {
				fail("an index is scaled by 1, 2, 4 or 8")
			}
			if index = number(memory.Index); index == 4 {
				fail("SP cannot be an index")
			}
		}
		p0 ^= byte(index>>3)<<6 | byte(base>>3)<<5
		modrm = byte(register) << 3
		low := byte(base & 7)
		if len(tiles) == 1 || low == 4 {
			tail = []byte{scale<<6 | byte(index&7)<<3 | low}
			modrm |= 4
		} else {
			modrm |= low
		}
		switch d := memory.Disp; {
		case d == 0 && low != 5: // BP, R13: only with a displacement
		case d >= -128 && d <= 127:
			modrm |= 0x40
			tail = append(tail, byte(d))
		default:
			modrm |= 0x80
			tail = append(tail, byte(d), byte(d>>8), byte(d>>16), byte(d>>24))
		}
	}
	return append([]byte{0xc4, p0, byte(^vvvv&15)<<3 | op.prefix, op.opcode, modrm}, tail...), true
}

// vexDot is VPDPBUSD of AVX-VNNI, which Go's assembler lacks: it encodes VPDPBUSD with EVEX.
const vexDot = "{vex}VPDPBUSD"

// encodeVEXDot returns the bytes of vexDot for registers of 256 bits (Intel SDM volume 2, "VEX.256.66.0F38.W0 50 /r");
// ok is false for other instructions. Operands are the signed bytes, the unsigned ones, and the sums.
//
//	c4 | ~R 1 ~B 0 0 0 1 0 | 0 ~vvvv 1 01 | 50 | ModRM
func encodeVEXDot(mnemonic string, operands []any) (code []byte, ok bool) {
	if mnemonic != vexDot {
		return nil, false
	}
	var r [3]int
	for i, o := range operands {
		v, isVector := o.(Vec)
		if !isVector || v.width != 'Y' || v.number > 15 || len(operands) != len(r) {
			panic(fmt.Sprintf("asm: %s %v: want three registers Y0 to Y15", mnemonic, operands))
		}
		r[i] = v.number
	}
	signed, unsigned, sums := r[0], r[1], r[2]
	p0, p1, modrm := 0xe2^bit(sums, 3)<<7^bit(signed, 3)<<5, byte(^unsigned&15)<<3|5, 0xc0|byte(sums&7)<<3|byte(signed&7)
	return []byte{0xc4, p0, p1, 0x50, modrm}, true
}
