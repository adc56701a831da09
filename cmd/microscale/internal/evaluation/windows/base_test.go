package windows

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newBaseRun returns a run of llama.cpp's windows with a vocabulary of an odd number of tokens, more than one block.
func newBaseRun(t *testing.T, noise float32) *Run {
	t.Helper()
	const vocabulary, context = blockSize + 77, 11
	m, err := LookupMethod(LlamaCPP)
	if err != nil {
		t.Fatal(err)
	}
	windows, err := m.Windows(fakeTokens(3*context, vocabulary), context, -1)
	if err != nil {
		t.Fatal(err)
	}
	return &Run{Windows: windows, Models: []Stack{newFake(vocabulary, 2, noise)}, Threads: 2}
}

// writeTestBase writes the Base of a run.
func writeTestBase(t *testing.T, r *Run) string {
	t.Helper()
	var b bytes.Buffer
	r.Out = &b
	if _, err := r.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "base")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBase compares the divergence from a file with that from the original itself, which differs by the rounding and the range of
// codes.
func TestBase(t *testing.T) {
	original := newBaseRun(t, 0)
	path := writeTestBase(t, original)
	if info, err := os.Stat(path); err != nil || info.Size() != BaseBytes(original.Models[0].Vocabulary(), original.Windows) {
		t.Errorf("got a file of %d bytes, want %d (%v)", info.Size(), BaseBytes(original.Models[0].Vocabulary(), original.Windows), err)
	}
	b, err := OpenBase(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if !IsBase(path) || IsBase(filepath.Dir(path)) {
		t.Error("IsBase is wrong")
	}
	r, direct := newBaseRun(t, 0.1), newBaseRun(t, 0.1)
	r.Base, r.Windows = b, b.Windows(-1)
	direct.Original = original.Models[0]
	got, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := direct.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, e := got.Comparisons[0].Divergence(), want.Comparisons[0].Divergence()
	if d.Model != e.Model || d.SameTop != e.SameTop || math.Abs(d.KL.Value-e.KL.Value) > 1e-4 || e.KL.Value < 0.01 ||
		len(got.Comparisons[0].KL) != 3*5 {
		t.Errorf("got %+v, want %+v", d, e)
	}
	if w := b.Windows(5); w[2].Tokens[0] != 5 || w[2].First != 6 || w[2].Tokens[1] != original.Windows[2].Tokens[1] {
		t.Errorf("got the window %+v", w[2])
	}
	b.Vocabulary++
	if _, err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "a vocabulary of 4173 tokens, "+path+" has 4174") {
		t.Errorf("got %v", err)
	}
}

// TestBaseRows compares rows with llama.cpp's formulas in float32, one element after another: logits beyond the range, equal ones.
func TestBaseRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []float64{0, 1, 4, 40} {
		logits := make([]float32, 1001)
		for i := range logits {
			logits[i] = float32(spread * r.NormFloat64())
		}
		model := make([]float32, len(logits))
		for i := range model {
			model[i] = logits[i] + float32(r.NormFloat64()/8)
		}
		row := make([]byte, 8+2*1002)
		encodeBaseRow(row, logits)
		largest, least, sum := logits[0], logits[0], 0.0
		for _, v := range logits {
			largest, least = max(largest, v), min(least, v)
		}
		least = max(least, largest-16)
		for _, v := range logits {
			sum += math.Exp(float64(v - largest))
		}
		step, first := (largest-least)/65535, least-largest-float32(math.Log(sum))
		if got := math.Float32frombits(binary.LittleEndian.Uint32(row)); got != step {
			t.Errorf("step %g, want %g", got, step)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(row[4:])); math.Abs(float64(got-first)) > 2e-6 {
			t.Errorf("least %g, want %g", got, first)
		}
		p, err := newBasePair(row)
		if err != nil {
			t.Fatal(err)
		}
		p.add(0, model[:600], 700)
		p.add(600, model[600:], 700)
		logSum, kl := logProbabilities(model)[0]-float64(model[0]), 0.0
		for i := range logits {
			code := binary.LittleEndian.Uint16(row[8+2*i:])
			near := first
			if step > 0 && logits[i] > least {
				near += float32(math.RoundToEven(float64((logits[i]-least)/step))) * step
			}
			ln := first + float32(code)*step
			if math.Abs(float64(ln-near)) > float64(step)+1e-5 {
				t.Fatalf("element %d: %g, want %g", i, ln, near)
			}
			if i == 700 && p.nll != -float64(ln) {
				t.Errorf("spread %g: loss %g, want %g", spread, p.nll, -ln)
			}
			if ln > -16 {
				kl += math.Exp(float64(ln)) * (float64(ln) - float64(model[i]) - logSum)
			}
		}
		c := &Comparison{}
		if err := p.addTo(c, 0); err != nil || math.Abs(c.KL[0]-kl) > 1e-5 || c.SameTop[0] != (argmax(logits) == argmax(model)) && spread > 0 {
			t.Errorf("spread %g: divergence %g, want %g (%v)", spread, c.KL[0], kl, err)
		}
	}
}

// TestBaseDamaged: each damage is one line that names the file.
func TestBaseDamaged(t *testing.T) {
	path := writeTestBase(t, newBaseRun(t, 0))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	row := baseHead + 4*33
	for want, damage := range map[string]func(b []byte) []byte{
		"not a file of llama.cpp's":         func(b []byte) []byte { b[0] = 'x'; return b },
		"not a file":                        func(b []byte) []byte { return b[:9] },
		"incomplete or damaged":             func(b []byte) []byte { return b[:len(b)-1] },
		"the file is incomplete":            func(b []byte) []byte { return append(b, 0) },
		"3 windows of -1 tokens":            func(b []byte) []byte { copy(b[8:], "\xff\xff\xff\xff"); return b },
		"of a vocabulary of 0":              func(b []byte) []byte { clear(b[12:16]); return b },
		"2147483647 windows":                func(b []byte) []byte { copy(b[16:], "\xff\xff\xff\x7f"); return b },
		"window 1 has token -1":             func(b []byte) []byte { copy(b[baseHead:], "\xff\xff\xff\xff"); return b },
		"scored token 0: got log-probabili": func(b []byte) []byte { copy(b[row:], "\x00\x00\xc0\x7f"); return b },
		"scored token 1: got log-probabili": func(b []byte) []byte { copy(b[row+8+2*4174+4:], "\x00\x00\xc0\x7f"); return b },
	} {
		if err := os.WriteFile(path, damage(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := OpenBase(path)
		if err == nil {
			r := newBaseRun(t, 0.1)
			r.Base, r.Windows = b, b.Windows(-1)
			_, err = r.Do(t.Context())
			_ = b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
