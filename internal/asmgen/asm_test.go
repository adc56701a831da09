package asmgen

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var generate = flag.Bool("generate", false, "write the generated files instead of comparing them")

// TestFresh checks that the committed files are those that the generators write, and that every
// generated file has a generator.
func TestFresh(t *testing.T) {
	root := filepath.Join("..", "..")
	written := map[string]bool{}
	for _, s := range Sources() {
		file := filepath.Join(root, filepath.FromSlash(s.Name))
		if written[file] {
			t.Errorf("%s is written twice", s.Name)
		}
		written[file] = true
		if *generate {
			if err := os.WriteFile(file, []byte(s.Text), 0o644); err != nil {
				t.Error(err)
			}
			continue
		}
		if got, err := os.ReadFile(file); err != nil {
			t.Error(err)
		} else if string(got) != s.Text {
			t.Errorf("%s is stale: go generate ./internal/asmgen", s.Name)
		}
	}
	for file := range written {
		for _, arch := range []*Arch{AMD64, ARM64} {
			found, err := filepath.Glob(filepath.Join(filepath.Dir(file), "z*_"+arch.Name+".*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if !written[f] {
					t.Errorf("%s is written by no generator: remove it", f)
				}
			}
		}
	}
}

// sample uses every feature of the emitter.
func sample() *File {
	f := NewFile("internal/sample", "sum")
	data := make([]byte, 16)
	data[0], data[15] = 1, 0x80
	tab := f.Table("ones", data)
	fn := f.Func("sum", "sum returns the sum of n floats,\ntimes b.", "n int, a *float32, b float32) (s float32, flags uint64")
	n, a := fn.Arg("n"), fn.Arg("a")
	fn.Frame(64)
	fn.Note(Z(0), "sum")
	loop := fn.Label("loop")
	fn.Comment("one vector")
	fn.I("VFMADD231PS", a.At(64).By(n, 4), Z(1), Z(0))
	fn.I("VPADDD", tab.At(8), Z(0), Z(0))
	fn.I("VDPBF16PS", Z(2), Z(1), Z(0))
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.I("VMOVSS", X(0), fn.FP("s"))
	fn.Return()
	return f
}

func TestEmit(t *testing.T) {
	want := []Source{{"internal/sample/zsum_amd64.s", notice + `#include "textflag.h"

DATA ones<>+0(SB)/8, $0x0000000000000001
DATA ones<>+8(SB)/8, $0x8000000000000000
GLOBL ones<>(SB), RODATA|NOPTR, $16

// func sum(n int, a *float32, b float32) (s float32, flags uint64)
//
//	AX n
//	BX a
//	Z0 sum
TEXT ·sum(SB), NOSPLIT, $64-40
	MOVQ n+0(FP), AX
	MOVQ a+8(FP), BX

loop1:

	// one vector
	VFMADD231PS 64(BX)(AX*4), Z1, Z0
	VPADDD ones<>+8(SB), Z0, Z0
	LONG $0x48760062; WORD $0x0000 // VDPBF16PS Z2, Z1, Z0
	SUBQ $1, AX
	JNZ loop1
	VMOVSS X0, s+24(FP)
	VZEROUPPER
	RET
`}, {"internal/sample/zsum_amd64.go", notice + `package sample

// sum returns the sum of n floats,
// times b.
//
//go:noescape
func sum(n int, a *float32, b float32) (s float32, flags uint64)
`}}
	want[0].Text = strings.Replace(want[0].Text, "LONG $0x48760062; WORD $0x0000", "LONG $0x4876f262; WORD $0xc252", 1)
	if got := sample().sources(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\n%s", got[0].Text, got[1].Text)
	}
}
