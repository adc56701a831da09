package asm

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gnuMem writes an operand in memory as GNU as does.
func gnuMem(m Mem) string {
	name := func(r Reg) string {
		if strings.HasPrefix(string(r), "R") {
			return "%" + strings.ToLower(string(r))
		}
		return "%r" + strings.ToLower(string(r))
	}
	if m.Index == "" {
		return fmt.Sprintf("%d(%s)", m.Disp, name(m.Base))
	}
	return fmt.Sprintf("%d(%s,%s,%d)", m.Disp, name(m.Base), name(m.Index), m.Scale)
}

func gnuVec(v Vec) string { return fmt.Sprintf("%%%cmm%d", v.width|0x20, v.number) }

type encoding struct {
	gnu  string
	code []byte
}

// encodings returns instructions of every form: all registers in every
// position, all bases, scaled indices, displacements on both sides of every
// limit, broadcasts, masks and zeroing.
func encodings() []encoding {
	var list []encoding
	add := func(gnu, mnemonic string, operands ...any) {
		code, ok := encode(mnemonic, operands)
		if !ok {
			panic(mnemonic)
		}
		list = append(list, encoding{gnu, code})
	}
	bases := append([]Reg{"SP", "BP"}, amd64Generals...)
	for _, width := range []func(int) Vec{X, Y, Z} {
		w := width(0).width
		bytes := map[byte]int{'X': 16, 'Y': 32, 'Z': 64}[w]
		for _, name := range []string{"VDPBF16PS", "VCVTNE2PS2BF16"} {
			low := strings.ToLower(name)
			for i := range 32 {
				a, b, c := width(i), width((i*7+3)%32), width((i*13+5)%32)
				add(fmt.Sprintf("%s %s, %s, %s", low, gnuVec(a), gnuVec(b), gnuVec(c)), name, a, b, c)
				k := 1 + i%7
				add(fmt.Sprintf("%s %s, %s, %s{%%k%d}", low, gnuVec(a), gnuVec(b), gnuVec(c), k), name, a, b, K(k), c)
				add(fmt.Sprintf("%s %s, %s, %s{%%k%d}{z}", low, gnuVec(a), gnuVec(b), gnuVec(c), k), name+".Z", a, b, K(k), c)
			}
			for i, base := range bases {
				b, c := width(i), width(31-i)
				for _, disp := range []int{0, 4, bytes, -bytes, 127 * bytes, 128 * bytes, -128 * bytes, -129 * bytes, bytes / 2} {
					m := base.At(disp)
					add(fmt.Sprintf("%s %s, %s, %s", low, gnuMem(m), gnuVec(b), gnuVec(c)), name, m, b, c)
					add(fmt.Sprintf("%s %s{1to%d}, %s, %s", low, gnuMem(m), bytes/4, gnuVec(b), gnuVec(c)), name+".BCST", m, b, c)
					if index := bases[(i+5)%len(bases)]; index != SP {
						m = m.By(index, 1<<(i%4))
						add(fmt.Sprintf("%s %s, %s, %s", low, gnuMem(m), gnuVec(b), gnuVec(c)), name, m, b, c)
						add(fmt.Sprintf("%s %s{1to%d}, %s, %s{%%k3}{z}", low, gnuMem(m), bytes/4, gnuVec(b), gnuVec(c)), name+".BCST.Z", m, b, K(3), c)
					}
				}
			}
		}
		half := map[byte]func(int) Vec{'X': X, 'Y': X, 'Z': Y}[w]
		suffix := map[byte]string{'Y': "y"}[w] // as tells 256 bits of memory from 128 by it
		for i := range 32 {
			a, c := width(i), half(31-i)
			add(fmt.Sprintf("vcvtneps2bf16 %s, %s", gnuVec(a), gnuVec(c)), "VCVTNEPS2BF16", a, c)
			add(fmt.Sprintf("vcvtneps2bf16 %s, %s{%%k5}{z}", gnuVec(a), gnuVec(c)), "VCVTNEPS2BF16.Z", a, K(5), c)
			if w == 'X' {
				continue // memory of 128 bits is not offered
			}
			m := bases[i%len(bases)].At(bytes * (i - 16))
			add(fmt.Sprintf("vcvtneps2bf16%s %s, %s", suffix, gnuMem(m), gnuVec(c)), "VCVTNEPS2BF16", m, c)
			add(fmt.Sprintf("vcvtneps2bf16 %s{1to%d}, %s", gnuMem(m), bytes/4, gnuVec(c)), "VCVTNEPS2BF16.BCST", m, c)
		}
	}
	return append(list, tileEncodings()...)
}

// tileEncodings returns the instructions encoded with VEX, of AVX-VNNI and of tiles: all registers in every position, all
// bases and indices, displacements on both sides of every limit.
func tileEncodings() []encoding {
	var list []encoding
	add := func(gnu, mnemonic string, operands ...any) {
		code, ok := encodeTile(mnemonic, operands)
		if !ok {
			panic(mnemonic)
		}
		list = append(list, encoding{gnu, code})
	}
	add("tilerelease", "TILERELEASE")
	for i := range 16 {
		a, b, c := Y(i), Y((i*7+3)%16), Y((i*13+5)%16)
		code, _ := encodeVEXDot(vexDot, []any{a, b, c})
		list = append(list, encoding{fmt.Sprintf("{vex} vpdpbusd %s, %s, %s", gnuVec(a), gnuVec(b), gnuVec(c)), code})
	}
	for i := range 8 {
		a, b, c := T(i), T((i+3)%8), T((i+5)%8)
		add(fmt.Sprintf("tilezero %%tmm%d", i), "TILEZERO", a)
		add(fmt.Sprintf("tdpbf16ps %%tmm%d, %%tmm%d, %%tmm%d", int(a), int(b), int(c)), "TDPBF16PS", a, b, c)
	}
	bases := append([]Reg{"SP", "BP"}, amd64Generals...)
	for i, base := range bases {
		for j, disp := range []int{0, 4, 127, 128, -128, -129, 1 << 20} {
			m := base.At(disp)
			add("ldtilecfg "+gnuMem(m), "LDTILECFG", m)
			for _, index := range bases[1:] { // SP is no index
				m, tile := m.By(index, 1<<(j%4)), T((i+j)%8)
				add(fmt.Sprintf("tileloadd %s, %%tmm%d", gnuMem(m), int(tile)), "TILELOADD", m, tile)
				add(fmt.Sprintf("tileloaddt1 %s, %%tmm%d", gnuMem(m), int(tile)), "TILELOADDT1", m, tile)
				add(fmt.Sprintf("tilestored %%tmm%d, %s", int(tile), gnuMem(m)), "TILESTORED", tile, m)
			}
		}
	}
	return list
}

// TestEncodings compares every form with what the GNU assembler makes of the
// same instruction.
func TestEncodings(t *testing.T) {
	for _, tool := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("binutils is not installed: no %s", tool)
		}
	}
	list := encodings()
	dir := t.TempDir()
	source, object, raw := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o"), filepath.Join(dir, "a.bin")
	var text strings.Builder
	const slot = 16 // bytes per instruction, filled with zeros
	for _, e := range list {
		fmt.Fprintf(&text, "%s\n.balign %d, 0\n", e.gnu, slot)
	}
	if err := os.WriteFile(source, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"as", "--64", "-o", object, source}, {"objcopy", "-O", "binary", "-j", ".text", object, raw}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "no such instruction") || strings.Contains(string(out), "unrecognized option") {
				t.Skipf("this assembler is too old or for another architecture: %.200s", out)
			}
			t.Fatalf("%v: %v\n%.2000s", command, err, out)
		}
	}
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) < slot*len(list) {
		t.Fatalf("%d bytes for %d instructions", len(want), len(list))
	}
	for i, e := range list {
		w := want[slot*i : slot*(i+1)]
		got := append([]byte(nil), e.code...)
		got = append(got, make([]byte, slot-len(got))...)
		if string(got) != string(w) {
			t.Errorf("%s: got %s, want %s", e.gnu, hex.EncodeToString(got), hex.EncodeToString(w))
		}
	}
	t.Logf("%d encodings compared", len(list))
}

func TestEncodeErrors(t *testing.T) {
	for _, tc := range []struct {
		mnemonic string
		operands []any
	}{
		{"VDPBF16PS", []any{Z(0), Z(1)}},
		{"VDPBF16PS", []any{Z(0), Y(1), Z(2)}},
		{"VDPBF16PS", []any{Y(0), Z(1), Z(2)}},
		{"VDPBF16PS", []any{Z(0), Z(1), K(0), Z(2)}},
		{"VDPBF16PS.Z", []any{Z(0), Z(1), Z(2)}},
		{"VDPBF16PS.BCST", []any{Z(0), Z(1), Z(2)}},
		{"VDPBF16PS.SAE", []any{Z(0), Z(1), Z(2)}},
		{"VDPBF16PS", []any{Reg("AX").At(0).By(SP, 1), Z(1), Z(2)}},
		{"VDPBF16PS", []any{Reg("AX").At(0).By("BX", 3), Z(1), Z(2)}},
		{"VDPBF16PS", []any{Reg("FP").At(0), Z(1), Z(2)}},
		{"VCVTNEPS2BF16", []any{Z(0), Z(1)}},
		{"VCVTNEPS2BF16", []any{Reg("AX").At(0), Z(1)}},
		{"TDPBF16PS", []any{T(0), T(1)}},
		{"TDPBF16PS", []any{T(0), T(1), T(1)}},
		{"TDPBF16PS", []any{T(0), T(1), Z(2)}},
		{"TILEZERO", []any{T(8)}},
		{"TILELOADD", []any{Reg("AX").At(0), T(0)}},
		{"TILELOADD", []any{T(0), Reg("AX").At(0).By("BX", 1)}},
		{"TILESTORED", []any{T(0), Reg("AX").At(0).By("BX", 3)}},
		{"LDTILECFG", []any{Reg("AX").At(0).By("BX", 1)}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s %v was encoded", tc.mnemonic, tc.operands)
				}
			}()
			encode(tc.mnemonic, tc.operands)
			encodeTile(tc.mnemonic, tc.operands)
		}()
	}
	for _, encode := range []func(string, []any) ([]byte, bool){encode, encodeTile} {
		if _, ok := encode("VPADDD", []any{Z(0), Z(1), Z(2)}); ok {
			t.Error("VPADDD is not ours to encode")
		}
	}
}
