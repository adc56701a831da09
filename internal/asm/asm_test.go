package asm

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
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
	sources, err := Sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
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
			t.Errorf("%s is stale: run go generate ./internal/asm", s.Name)
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

// TestSameName checks that two functions of a package may not have one name, but routines of two
// files and functions of two architectures may.
func TestSameName(t *testing.T) {
	file := func(a *Arch, folder, name string) *File {
		f := a.NewFile(folder, name)
		f.Func("sum", "sum returns a sum.", "")
		f.Routine("half", "half halves.")
		return f
	}
	other := AMD64.NewFile("a", "other")
	other.Routine("half", "half halves.")
	different := []*File{file(AMD64, "a", "x"), file(ARM64, "a", "x"), file(AMD64, "b", "x"), other}
	if all, err := sources(different); err != nil || len(all) != 2*len(different) {
		t.Errorf("got %d files, %v", len(all), err)
	}
	other.Func("sum", "sum returns another sum.", "")
	twice := file(AMD64, "a", "twice")
	twice.Routine("half", "half halves again.")
	for want, files := range map[string][]*File{
		`^a: two functions are named sum, one by asm_test\.go:\d+ and one by asm_test\.go:\d+: rename one$`: different,
		`^a: two functions are named half, `: {twice},
	} {
		if _, err := sources(files); err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("got %v, want %s", err, want)
		} else if places := regexp.MustCompile(`asm_test\.go:\d+`).FindAllString(err.Error(), -1); len(places) != 2 || places[0] == places[1] {
			t.Errorf("%v: want two places", err)
		}
	}
}

// sample uses every feature of the emitter.
func sample() *File {
	f := NewFile("hf/sample", "sum")
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
	want := []Source{{"hf/sample/zsum_amd64.s", notice + `#include "textflag.h"

DATA ones<>+0(SB)/8, $0x0000000000000001
DATA ones<>+8(SB)/8, $0x8000000000000000
GLOBL ones<>(SB), RODATA|NOPTR, $16

// func sum(n int, a *float32, b float32) (s float32, flags uint64)
//
//	AX n; BX a; Z0 sum
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
`}, {"hf/sample/zsum_amd64.go", notice + `package sample

import (
	"github.com/microscale-go/microscale/internal/cpu"
)

// The processor features that each function needs.
const (
	sumNeeds = cpu.X86AVX | cpu.X86AVX512F | cpu.X86AVX512BF16
)

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
