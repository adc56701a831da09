package asm

// Codes of 4 bits from BF16 come from table lookups of bytes. An exponent, less that of the first
// binade whose elements may not round to zero, has 3 bits. A mantissa has 7 bits, and its class says
// which thresholds of rounding its binade has below it. Both together are the index of a code. See
// quant's nibbleTables.

// Layout of the constants of these kernels: 16 dwords, then the codes, then the classes.
const (
	nibbleCodes   = 64
	nibbleClasses = nibbleCodes + nibbleTable
	nibbleTable   = 128 // bytes
)

// Registers of constants.
var (
	zExtract    = Z(18) // bit offsets of exponents, then of mantissas, in each quadword
	zBases      = Z(19) // indices of the bytes of four dwords, one for each element of a lane
	zCodesLow   = Z(21)
	zCodesHigh  = Z(22)
	zClassLow   = Z(23) // E8M0 scales
	zClassHigh  = Z(24) // E8M0 scales
	zZero       = Z(23) // global
	zSeven      = Z(24) // global: 7 in each byte
	zNibbleJoin = Z(25) // multipliers that join two codes
	zDwords     = Z(27) // indices of dwords in the order of the elements
)

// kBlocks are the elements of each of four blocks among 64 elements.
var kBlocks = [4]Mask{K(2), K(3), K(4), K(5)}

// A nibbleTables is the read-only data of these kernels.
type nibbleTables struct {
	extract, order Sym
	bases          map[bool]Sym // by global
}

func makeNibbleTables(f *File) nibbleTables {
	return nibbleTables{
		extract: f.Table("quantExtract", indices(func(i int) int { return i%4*16 + (1-i/4%2)*7 })),
		order:   f.Table("quantDwords", indices(func(i int) int { return map[bool]int{true: i/4%4*4 + i/16}[i%4 == 0] })),
		bases: map[bool]Sym{
			false: f.Table("quantBases", indices(func(i int) int { return i / 8 % 2 * 4 })),
			true:  f.Table("quantBasesGlobal", indices(func(i int) int { return i/8%2*8 + i/32*4 })),
		},
	}
}

// loadNibbles fills the registers of constants, using t.
func (k *fused) loadNibbles(t Reg) {
	tables := k.tables.nibbles
	k.I("VMOVDQU64", tables.extract, zExtract)
	k.I("VMOVDQU64", tables.bases[k.global], zBases)
	k.I("VMOVDQU64", tables.order, zDwords)
	k.I("VMOVDQU64", k.c.base.At(nibbleCodes), zCodesLow)
	k.I("VMOVDQU64", k.c.base.At(nibbleCodes+64), zCodesHigh)
	broadcast(k.Func, 0x08080808, t, zSign)
	broadcast(k.Func, 0x10011001, t, zNibbleJoin) // bytes times 1, 16
	if !k.global {
		k.I("VMOVDQU64", k.c.base.At(nibbleClasses), zClassLow)
		k.I("VMOVDQU64", k.c.base.At(nibbleClasses+64), zClassHigh)
		return
	}
	broadcast(k.Func, 0xff800000, t, zBinade)
	broadcast(k.Func, 0x07070707, t, zSeven)
	k.I("VPXORD", zZero, zZero, zZero)
	k.I("MOVL", "$0x00ff00ff", t)
	k.I("KMOVQ", t, kBlocks[0])
	k.I("KSHIFTLQ", 32, kBlocks[0], kBlocks[1])
	k.I("KSHIFTLQ", 8, kBlocks[0], kBlocks[2])
	k.I("KSHIFTLQ", 40, kBlocks[0], kBlocks[3])
}

// nibbleCodes64 sets codes to those of 64 elements, the given number of bytes after k.src, and of
// blocks after k.read. Each word has two codes. Each lane has those of 8 elements, then of the 8
// that are 32 elements further. t is a scratch register.
func (k *fused) nibbleCodes64(at, block int, codes Vec, t Reg) {
	mantissas, signs, bases, table := Z(12), Z(13), Z(14), Z(15)
	k.I("VPMULTISHIFTQB", k.src.At(at), zExtract, mantissas)
	k.I("VPMULTISHIFTQB", k.src.At(at+64), zExtract, table)
	k.I("VMOVDQU64", k.src.At(at), signs)
	k.I("VPACKSSWB", k.src.At(at+64), signs, signs)
	k.I("VPSRLW", 4, signs, signs)
	k.I("VSHUFPS", 0x88, table, mantissas, codes)
	k.I("VSHUFPS", 0xdd, table, mantissas, mantissas)
	k.I("VBROADCASTI32X4", k.read.At(4*block), bases)
	k.I("VPSHUFB", zBases, bases, bases)
	k.I("VPSUBUSB", bases, codes, codes)
	if k.global {
		k.I("VPMINUB", zSeven, codes, codes)
		for i, blocks := range kBlocks {
			k.I("MOVL", k.read.At(64+4*(block+i)), t)
			k.I("VMOVDQU64", k.c.base.At(nibbleClasses).By(t, 1), table)
			k.I("VPERMI2B", k.c.base.At(nibbleClasses+64).By(t, 1), table, blocks, mantissas)
		}
	} else {
		k.I("VPERMI2B", zClassHigh, zClassLow, mantissas)
	}
	k.I("VPORD", mantissas, codes, codes)
	k.I("VPERMI2B", zCodesHigh, zCodesLow, codes)
	k.I("VPTERNLOGD", 0xd8, zSign, signs, codes) // where zSign is set signs, else codes
	k.I("VPMADDUBSW", zNibbleJoin, codes, codes)
}

// storeNibbles stores the codes of 128 elements. It uses k.codeAhead as a scratch register.
func (k *fused) storeNibbles() {
	first, second, codeAhead := Z(8), Z(9), k.codeAhead
	k.nibbleCodes64(0, 0, first, codeAhead)
	k.nibbleCodes64(128, 64/k.block(), second, codeAhead)
	k.I("VPACKUSWB", second, first, first)
	k.I("VPERMD", first, zDwords, first)
	if k.global {
		k.I("MOVQ", k.FP("codeAhead"), codeAhead)
	}
	k.storeCodes("VMOVDQU64", first, k.dst.At(0), codeAhead)
	k.I("ADDQ", 64, k.dst)
}

// nibbleBases stores the first exponents of blocks in the write buffer. Under global scales, it also
// stores the offsets of their classes.
func (k *fused) nibbleBases(s *sequence) {
	t := Z(0)
	if k.global {
		t = globalCodes(s, k.c, k.scales.At(0))
		s.I("VPSRLD", 13, t, Z(0))
		s.I("VPANDD.BCST", k.c.At("offsets"), Z(0), Z(0))
		s.I("VPTESTNMD", t, t, K(1))
		s.I("VPBROADCASTD", k.c.At("zeroOffset"), K(1), Z(0))
		s.I("VMOVDQA64", Z(0), k.write.At(64))
		s.I("VMULPS.BCST", k.c.At("decode"), t, t)
		s.I("VPSRLD", 23, t, t)
		s.I("VPSUBD.BCST", k.c.At("below"), t, t)
		s.I("VPMAXSD", zZero, t, t)
	} else {
		exponentCodes(s, k.c, k.scales.At(0))
		s.I("VPMAXSD.BCST", k.c.At("floor"), t, t)
		s.I("VPSUBD.BCST", k.c.At("below"), t, t)
	}
	s.I("VMOVDQA64", t, k.write.At(0))
}
