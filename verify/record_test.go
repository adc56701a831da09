package verify_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// TestRecordDamage: a code that changed to another valid code is a problem by its checksum,
// even if the error of the weight is plausible.
func TestRecordDamage(t *testing.T) {
	slow.Race(t, slow.Repeats)
	c, err := sample.Open(context.Background(), sample.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src := checkpoint.Read(c)
	plan, err := convert.PlanQuantize(t.Context(), src.Source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	problems := func() string {
		c, err := hf.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		report, err := verify.Compare(context.Background(), src.Source, c, verify.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range report.Problems {
			all = append(all, p.String())
		}
		return strings.Join(all, "\n")
	}
	if got := problems(); got != "" {
		t.Fatalf("before it is damaged: %s", got)
	}
	decisions := slices.Collect(plan.Decisions())
	d := decisions[slices.IndexFunc(decisions, func(d convert.Decision) bool { return d.Action == convert.Quantize })]
	path := filepath.Join(dst, d.File)
	at := d.Tensors[0].Begin
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at+1000] ^= 1
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := problems(); !strings.Contains(got, d.Tensors[0].Name) || !strings.Contains(got, "its bytes do not match their checksum") {
		t.Errorf("the problems are %q", got)
	}
}

// TestRecordDamageGGUF is TestRecordDamage for a GGUF file.
func TestRecordDamageGGUF(t *testing.T) {
	c, err := sample.Open(context.Background(), sample.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src := checkpoint.Read(c)
	plan, err := convert.PlanQuantize(t.Context(), src.Source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
		Convention: "gguf"})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst.gguf")
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	damaged := func() []string {
		m, err := llamacpp.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		names, err := m.Damaged(context.Background(), func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got := damaged(); len(got) > 0 {
		t.Fatalf("before it is damaged: %q", got)
	}
	data, err := os.ReadFile(dst)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1_000_000] ^= 1
	if err := os.WriteFile(dst, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := damaged(); len(got) != 1 || !strings.HasPrefix(got[0], "blk.") {
		t.Errorf("damaged tensors: %q", got)
	}
}
