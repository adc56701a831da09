package asm

// neonWideFields are the fields of gemm.wideArgs.
const neonWideFields = "dst, src unsafe.Pointer, stride, step, half, middle, gap, n int, table unsafe.Pointer"

// neonWidePacks writes the functions of arm64 that pack wide int8 panels, 8 rows at a time, 32 codes of each in a loop: with 8 bits 0.24
// instructions per element, with 4 bits 0.38.
func neonWidePacks(f *File) {
	const rows, registers = 8, 4 // rows, and those of a sub-panel of A
	begin := func(name, codes string) (k *neonPack, half, q Reg) {
		fn := f.Func("packWide"+name, "packWide"+name+" packs 8 rows of "+codes+` as n blocks of 32 codes of a wide int8 panel,
or of two sub-panels of A, half bytes apart. Two steps are step bytes long; after the first 16 codes middle bytes are left out, after the
next 16 gap bytes.`, "p wideArgs")
		k = &neonPack{fn: fn, dst: fn.Arg("dst"), src: fn.Arg("src"), stride: fn.Arg("stride"), step: fn.Arg("step"), n: fn.Arg("n"),
			p: fn.GP("row; a step")}
		return k, fn.Arg("half"), fn.GP("the other four rows")
	}
	// store stores two steps, each with the registers of one half of 4 rows.
	store := func(k *neonPack, at Reg, rows []Neon) {
		for _, zip := range []string{"VZIP1", "VZIP2"} {
			pairs := neonRange(18, 2)
			for i := range pairs {
				k.fn.I(zip, rows[2*i+1].D2(), rows[2*i].D2(), pairs[i].D2())
			}
			k.fn.I("VST1", list(neonEach(Neon.D2, pairs)...), "("+string(at)+")")
			k.fn.I("ADD", k.step, at)
		}
	}
	k, half, q := begin("Bytes", "int8 elements")
	middle, gap := k.fn.Arg("middle"), k.fn.Arg("gap")
	k.loop(func() {
		for _, skip := range []Reg{middle, gap} {
			k.load(Neon.B16, 16)
			k.fn.I("ADD", half, k.dst, q)
			store(k, k.dst, neonRange(0, registers))
			store(k, q, neonRange(registers, registers))
			k.fn.I("ADD", skip, k.dst)
		}
	})
	k.fn.Return()

	k, half, q = begin("Nibbles", "4-bit codes")
	fn := k.fn
	middle, gap = fn.Arg("middle"), fn.Arg("gap")
	low, table := V(26), V(27)
	fn.I("MOVD", fn.FP("table"), k.p)
	fn.I("FMOVQ", k.p.At(0), "F27")
	fn.I("VMOVI", 0x0f, low.B16())
	fn.Note("V26 V27", "mask of low nibbles; table of integers")
	k.loop(func() {
		k.load(Neon.B16, 16)
		fn.I("ADD", half, k.dst, q)
		for g, at := range []Reg{q, k.dst} {
			first := registers * (1 - g)
			var halves [2][]Neon // the first 16 codes of the rows, and the others
			for i := range registers {
				even, odd := V(16), V(17)
				fn.I("VAND", low.B16(), V(first+i).B16(), even.B16())
				fn.I("VUSHR", 4, V(first+i).B16(), odd.B16())
				for _, v := range []Neon{even, odd} {
					fn.I("VTBL", v.B16(), list(table.B16()), v.B16())
				}
				for j, zip := range []string{"VZIP1", "VZIP2"} {
					to := V(8 + 2*i + j)
					fn.I(zip, odd.B16(), even.B16(), to.B16())
					halves[j] = append(halves[j], to)
				}
			}
			store(k, at, halves[0])
			fn.I("ADD", middle, at)
			store(k, at, halves[1])
		}
		fn.I("ADD", gap, k.dst)
	})
	fn.Return()
}
