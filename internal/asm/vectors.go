package asm

import "fmt"

// broadcast fills a vector with a dword.
func broadcast(fn *Func, value uint32, through Reg, v Vec) {
	fn.I("MOVL", fmt.Sprintf("$0x%08x", value), through)
	if v.width == 'Z' {
		fn.I("VPBROADCASTD", through, v)
		return
	}
	fn.I("VMOVD", through, v.X())
	fn.I("VPBROADCASTD", v.X(), v)
}

// Predicates of VCMPPS that NaN does not satisfy, and the one that it does.
const (
	lessThan    = 0x11
	greaterThan = 0x1e
	unordered   = 0x03
)

// maxDword sets r to the largest dword of v, by way of registers 0 and 1.
func (fn *Func) maxDword(v Vec, r Reg) {
	fn.maxDwords(v, Z(0), Z(1))
	fn.I("VMOVD", X(0), r)
}

// maxDwords sets the lowest four dwords of to, which may be v, to the largest of v, by
// way of t.
func (fn *Func) maxDwords(v, to, t Vec) {
	fn.I("VEXTRACTI64X4", 1, v.Z(), t.Y())
	fn.I("VPMAXUD", t.Y(), v.Y(), to.Y())
	fn.I("VEXTRACTI32X4", 1, to.Y(), t.X())
	fn.I("VPMAXUD", t.X(), to.X(), to.X())
	for _, order := range []int{0x4e, 0xb1} {
		fn.I("VPSHUFD", order, to.X(), t.X())
		fn.I("VPMAXUD", t.X(), to.X(), to.X())
	}
}

// roundToBF16 sets the upper half of each dword of sum to the BF16 nearest to x, ties
// to even, NaN aside: half, 0x7fff, and the last bit that stays are added to x. half and
// one are vectors of dwords, or places of them.
func (fn *Func) roundToBF16(x, sum Vec, half, one any) {
	and := "VPAND"
	if x.width == 'Z' {
		and = "VPANDD"
	}
	fn.I("VPSRLD", 16, x, sum)
	fn.I(and, one, sum, sum)
	fn.I("VPADDD", half, sum, sum)
	fn.I("VPADDD", x, sum, sum)
}
