package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

// rawCase returns a case in the format of --raw.
func rawCase(u *mma.Unit, c mmatest.Case) []byte {
	var b, word []byte
	put := func(t *mma.Type, codes ...uint64) {
		for _, code := range codes {
			word = binary.LittleEndian.AppendUint64(word[:0], code)
			b = append(b, word[:t.Bytes]...)
		}
	}
	put(u.A, c.A...)
	put(u.B, c.B...)
	put(u.Out, c.C)
	return append(append(b, c.ScaleA...), c.ScaleB...)
}

// TestRawCases streams adversarial cases through every unit, also chained, and compares
// the results with those of package mma.
func TestRawCases(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for _, m := range mma.Models() {
		for _, u := range m.Units() {
			for _, chain := range []int{1, 3} {
				k := chain * u.K
				args := []string{"mma", "--raw", "--model", m.Name, "--a", u.A.Name, "--b", u.B.Name, "--out", u.Out.Name, "--k", fmt.Sprint(k)}
				if u.Scale != nil {
					args = append(args, "--scale", u.Scale.Name)
				}
				source := mmatest.Source(len(args))
				var cases, want, word []byte
				for range 50 {
					c := mmatest.Hard(u, k, &source)
					cases = append(cases, rawCase(u, c)...)
					word = binary.LittleEndian.AppendUint64(word[:0], c.Dot(u))
					want = append(want, word[:u.Out.Bytes]...)
				}
				status, stdout, stderr := execute(string(cases), args...)
				if status != exitDone || stdout != string(want) {
					t.Errorf("%s: exit status %d, other results: %s", strings.Join(args, " "), status, stderr)
				}
			}
		}
	}
}

// TestRawDefaults checks the defaults: the type of A for B, an FP32 result, the scale
// and K of the model. A shorter instruction is chosen by its K.
func TestRawDefaults(t *testing.T) {
	operand := func(name string) *mma.Type {
		typ, err := mma.LookupType(name)
		if err != nil {
			t.Fatal(err)
		}
		return typ
	}
	for _, tc := range []struct {
		args string
		k    int
		o    mma.Options
	}{
		{"--model hopper-wgmma --a e4m3", 32, mma.Options{A: operand("e4m3")}},
		{"--model blackwell-mxf4nvf4 --a e2m1", 64, mma.Options{A: operand("e2m1"), Scale: operand("ue4m3")}},
		{"--model hopper-mma --a f16 --k 8", 8, mma.Options{A: operand("f16"), K: 8}},
	} {
		m, err := mma.Lookup(strings.Fields(tc.args)[1])
		if err != nil {
			t.Fatal(err)
		}
		u, err := m.Unit(tc.o)
		if err != nil {
			t.Fatal(err)
		}
		source := mmatest.Source(4)
		c := mmatest.Hard(u, tc.k, &source)
		_, stdout, stderr := execute(string(rawCase(u, c)), append([]string{"mma", "--raw"}, strings.Fields(tc.args)...)...)
		if want := string(binary.LittleEndian.AppendUint32(nil, uint32(c.Dot(u)))); stdout != want {
			t.Errorf("%s: %x, want %x: %s", tc.args, stdout, want, stderr)
		}
	}
}

// TestRawCaseEnds checks that a truncated last case is an error of one line, after the
// results of the complete cases.
func TestRawCaseEnds(t *testing.T) {
	args := strings.Fields("mma --raw --model blackwell-mxf8f6f4 --a e4m3")
	status, stdout, stderr := execute(strings.Repeat("\x00", 2*70+69), args...)
	const want = "standard input ends within case 3: got 69 bytes, want 70 for 32 e4m3, 32 e4m3, C in f32, 2×1 ue8m0; 2 results written"
	if status != exitFailed || len(stdout) != 8 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit status %d, %d bytes, %q, want %q", status, len(stdout), stderr, want)
	}
	if status, stdout, stderr = execute("", args...); status != exitDone || stdout != "" {
		t.Errorf("no cases: exit status %d, %q, %q", status, stdout, stderr)
	}
}

// TestNoProducts checks that a K of zero is an error, not the default.
func TestNoProducts(t *testing.T) {
	for _, action := range []string{"--raw", "--explain 1:1"} {
		args := append(strings.Fields("mma --model hopper-wgmma --a e4m3 --k 0"), strings.Fields(action)...)
		if status, stdout, stderr := execute("", args...); status != exitUsage || stdout != "" || !strings.Contains(stderr,
			"--k 0: a case has at least one product") {
			t.Errorf("%s: exit status %d, %q, %q", action, status, stdout, stderr)
		}
	}
}

// TestExplainNaNs checks that equal terms share a row also if they are NaN, here by a NaN scale.
func TestExplainNaNs(t *testing.T) {
	_, stdout, stderr := execute("", strings.Fields("mma --model blackwell-mxf8f6f4 --a e4m3 --explain --scales-a nan 1:1:32")...)
	if !strings.Contains(stdout, "k 0 … k 31    NaN\n") {
		t.Errorf("got %s%s", stdout, stderr)
	}
}

// TestRawAnswers checks that a client gets each result before it sends the rest of the next case.
func TestRawAnswers(t *testing.T) {
	in, send := io.Pipe()
	receive, out := io.Pipe()
	done := make(chan int)
	go func() {
		var stderr bytes.Buffer
		status := run(strings.Fields("mma --raw --model volta-mma --a f16"), in, out, &stderr)
		_ = out.Close()
		done <- status
	}()
	result := make([]byte, 4)
	for _, size := range []int{20, 25, 15} {
		if _, err := send.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(receive, result); err != nil {
			t.Fatal(err)
		}
	}
	_ = send.Close()
	if status := <-done; status != exitDone {
		t.Errorf("exit status %d", status)
	}
}
