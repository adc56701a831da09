package asm

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// neonExamples lists instructions in Go's order with LLVM's text and encoding of them
// (llvm-mc -arch=aarch64 -show-encoding, LLVM 14).
var neonExamples = []struct {
	mnemonic string
	operands []any
	llvm     string
	word     uint32
}{
	{"VFADD", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fadd v3.4s, v1.4s, v2.4s", 0x4e22d423},
	{"VFADD", []any{V(2).D2(), V(1).D2(), V(3).D2()}, "fadd v3.2d, v1.2d, v2.2d", 0x4e62d423},
	{"VFSUB", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fsub v3.4s, v1.4s, v2.4s", 0x4ea2d423},
	{"VFABS", []any{V(1).S4(), V(3).S4()}, "fabs v3.4s, v1.4s", 0x4ea0f823},
	{"VFCMGT", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fcmgt v3.4s, v1.4s, v2.4s", 0x6ea2e423},
	{"VFCMGT.0", []any{V(1).S4(), V(3).S4()}, "fcmgt v3.4s, v1.4s, #0.0", 0x4ea0c823},
	{"VFCMEQ.0", []any{V(1).S4(), V(3).S4()}, "fcmeq v3.4s, v1.4s, #0.0", 0x4ea0d823},
	{"VSMAX", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "smax v3.4s, v1.4s, v2.4s", 0x4ea26423},
	{"VSMIN", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "smin v3.4s, v1.4s, v2.4s", 0x4ea26c23},
	{"VFRINTZ", []any{V(1).D2(), V(3).D2()}, "frintz v3.2d, v1.2d", 0x4ee19823},
	{"VSMAXV", []any{V(1).S4(), V(3).S4()}, "smaxv s3, v1.4s", 0x4eb0a823},
	{"VFCVTL", []any{V(1).S2(), V(3).D2()}, "fcvtl v3.2d, v1.2s", 0x0e617823},
	{"VFCVTL2", []any{V(1).S4(), V(3).D2()}, "fcvtl2 v3.2d, v1.4s", 0x4e617823},
	{"VFADDP", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "faddp v3.4s, v1.4s, v2.4s", 0x6e22d423},
	{"VFMUL", []any{V(2).S4(), V(17).S4(), V(31).S4()}, "fmul v31.4s, v17.4s, v2.4s", 0x6e22de3f},
	{"VFDIV", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fdiv v3.4s, v1.4s, v2.4s", 0x6e22fc23},
	{"VFMIN", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fmin v3.4s, v1.4s, v2.4s", 0x4ea2f423},
	{"VFMAX", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fmax v3.4s, v1.4s, v2.4s", 0x4e22f423},
	{"VUSHL", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "ushl v3.4s, v1.4s, v2.4s", 0x6ea24423},
	{"VMUL", []any{V(2).H8(), V(1).H8(), V(3).H8()}, "mul v3.8h, v1.8h, v2.8h", 0x4e629c23},
	{"VMUL", []any{V(2).B16(), V(1).B16(), V(3).B16()}, "mul v3.16b, v1.16b, v2.16b", 0x4e229c23},
	{"VSSHLL", []any{0, V(1).B8(), V(3).H8()}, "sshll v3.8h, v1.8b, #0", 0x0f08a423},
	{"VSSHLL2", []any{0, V(1).B16(), V(3).H8()}, "sshll2 v3.8h, v1.16b, #0", 0x4f08a423},
	{"VSSHLL", []any{7, V(1).H4(), V(3).S4()}, "sshll v3.4s, v1.4h, #7", 0x0f17a423},
	{"VSCVTF", []any{V(1).S4(), V(3).S4()}, "scvtf v3.4s, v1.4s", 0x4e21d823},
	{"VSQDMULH", []any{V(2).H8(), V(1).H8(), V(3).H8()}, "sqdmulh v3.8h, v1.8h, v2.8h", 0x4e62b423},
	{"VSCVTF.X", []any{6, V(1).S4(), V(3).S4()}, "scvtf v3.4s, v1.4s, #6", 0x4f3ae423},
	{"VFMLA.S", []any{V(18).S4().lane(3), V(1).S4(), V(3).S4()}, "fmla v3.4s, v1.4s, v18.s[3]", 0x4fb21823},
	{"VFMLA.S", []any{V(18).S4().lane(2), V(1).S4(), V(3).S4()}, "fmla v3.4s, v1.4s, v18.s[2]", 0x4f921823},
	{"VFCMEQ", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "fcmeq v3.4s, v1.4s, v2.4s", 0x4e22e423},
	{"VFCVTN", []any{V(1).D2(), V(3).S2()}, "fcvtn v3.2s, v1.2d", 0x0e616823},
	{"VFCVTN2", []any{V(1).D2(), V(3).S4()}, "fcvtn2 v3.4s, v1.2d", 0x4e616823},
	{"VFSQRT", []any{V(1).S4(), V(3).S4()}, "fsqrt v3.4s, v1.4s", 0x6ea1f823},
	{"VUMULL", []any{V(2).S2(), V(1).S2(), V(3).D2()}, "umull v3.2d, v1.2s, v2.2s", 0x2ea2c023},
	{"VUMULL2", []any{V(2).S4(), V(1).S4(), V(3).D2()}, "umull2 v3.2d, v1.4s, v2.4s", 0x6ea2c023},
	{"VFCVTNS", []any{V(1).S4(), V(3).S4()}, "fcvtns v3.4s, v1.4s", 0x4e21a823},
	{"VSQXTN", []any{V(1).S4(), V(3).H4()}, "sqxtn v3.4h, v1.4s", 0x0e614823},
	{"VSQXTN2", []any{V(1).S4(), V(3).H8()}, "sqxtn2 v3.8h, v1.4s", 0x4e614823},
	{"VSQXTN", []any{V(1).H8(), V(3).B8()}, "sqxtn v3.8b, v1.8h", 0x0e214823},
	{"VCMHI", []any{V(2).S4(), V(1).S4(), V(3).S4()}, "cmhi v3.4s, v1.4s, v2.4s", 0x6ea23423},
	{"VFCVTZS", []any{V(1).S4(), V(3).S4()}, "fcvtzs v3.4s, v1.4s", 0x4ea1b823},
	{"VSSHR", []any{1, V(1).S4(), V(3).S4()}, "sshr v3.4s, v1.4s, #1", 0x4f3f0423},
	{"VSDOT.S", []any{V(18).S4().lane(3), V(1).B16(), V(3).S4()}, "sdot v3.4s, v1.16b, v18.4b[3]", 0x4fb2e823},
	{"VSDOT.S", []any{V(2).S4().lane(1), V(17).B16(), V(30).S4()}, "sdot v30.4s, v17.16b, v2.4b[1]", 0x4fa2e23e},
	{"VSMMLA", []any{V(2).B16(), V(17).B16(), V(30).S4()}, "smmla v30.4s, v17.16b, v2.16b", 0x4e82a63e},
	{"VBFDOT", []any{V(2).H8(), V(17).H8(), V(30).S4()}, "bfdot v30.4s, v17.8h, v2.8h", 0x6e42fe3e},
	{"VBFMMLA", []any{V(2).H8(), V(17).H8(), V(30).S4()}, "bfmmla v30.4s, v17.8h, v2.8h", 0x6e42ee3e},
	{"VFMUL.S", []any{V(2).S4().lane(1), V(1).S4(), V(3).S4()}, "fmul v3.4s, v1.4s, v2.s[1]", 0x4fa29023},
	{"VFCVTL", []any{V(1).H4(), V(3).S4()}, "fcvtl v3.4s, v1.4h", 0x0e217823},
	{"VFCVTL2", []any{V(1).H8(), V(3).S4()}, "fcvtl2 v3.4s, v1.8h", 0x4e217823},
	{"VUMAXV", []any{V(1).B16(), V(3).B16()}, "umaxv b3, v1.16b", 0x6e30a823},
	{"VUMAXV", []any{V(1).S4(), V(3).S4()}, "umaxv s3, v1.4s", 0x6eb0a823},
}

// TestEncodeNEON compares encodings with LLVM's.
func TestEncodeNEON(t *testing.T) {
	covered := map[string]bool{}
	for _, e := range neonExamples {
		covered[e.mnemonic] = true
		if got, ok := encodeNEON(e.mnemonic, e.operands); !ok || got != fmt.Sprintf("WORD $0x%08x", e.word) {
			t.Errorf("%s: got %s, want 0x%08x", e.llvm, got, e.word)
		}
	}
	for name := range neonInstructions {
		if !covered[name] {
			t.Errorf("%s has no example", name)
		}
	}
	if _, err := exec.LookPath("llvm-mc"); err != nil {
		t.Skip("llvm-mc is not installed: encodings are compared with the recorded ones only")
	}
	var text strings.Builder
	for _, e := range neonExamples {
		fmt.Fprintln(&text, e.llvm)
	}
	command := exec.Command("llvm-mc", "-arch=aarch64", "-show-encoding")
	command.Stdin = strings.NewReader(text.String())
	out, err := command.Output()
	if err != nil {
		t.Skipf("llvm-mc does not support aarch64: %v", err)
	}
	found := regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllSubmatch(out, -1)
	if len(found) != len(neonExamples) {
		t.Fatalf("got %d encodings, want %d", len(found), len(neonExamples))
	}
	for i, e := range neonExamples {
		var code [4]byte
		for b := range code {
			if _, err := fmt.Sscanf(string(found[i][1+b]), "%02x", &code[b]); err != nil {
				t.Fatal(err)
			}
		}
		if got := binary.LittleEndian.Uint32(code[:]); got != e.word {
			t.Errorf("%s: llvm-mc gives 0x%08x, recorded 0x%08x", e.llvm, got, e.word)
		}
	}
}

// TestEncodeNEONErrors checks that wrong operands panic.
func TestEncodeNEONErrors(t *testing.T) {
	for _, e := range []struct {
		mnemonic string
		operands []any
	}{
		{"VFMUL", []any{V(0).S4(), V(1).S4()}},
		{"VFMUL", []any{V(0), V(1).S4(), V(2).S4()}},
		{"VFMUL", []any{Reg("R0"), V(1).S4(), V(2).S4()}},
		{"VFCVTL", []any{V(1).H8(), V(3).S4()}},
		{"VFCVTL2", []any{V(1).H4(), V(3).S4()}},
		{"VSSHLL", []any{8, V(1).B8(), V(3).H8()}},
		{"VSSHLL", []any{V(1).B8(), V(3).H8()}},
		{"VSCVTF.X", []any{0, V(1).S4(), V(3).S4()}},
		{"VFMLA.S", []any{V(1).S4(), V(1).S4(), V(3).S4()}},
		{"VFMUL", []any{V(1).S4().lane(1), V(1).S4(), V(3).S4()}},
		{"VSSHLL2", []any{0, V(1).B8(), V(3).H8()}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s %v: got no panic", e.mnemonic, e.operands)
				}
			}()
			encodeNEON(e.mnemonic, e.operands)
		}()
	}
	if _, ok := encodeNEON("VADD", []any{V(0).S4(), V(1).S4(), V(2).S4()}); ok {
		t.Error("VADD: Go's assembler has it")
	}
}
