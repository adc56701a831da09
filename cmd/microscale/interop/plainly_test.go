package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// plainlyWith are the packages of TestTorchPlainly.
var plainlyWith = []string{"transformers==5.24.0", "compressed-tensors==0.20.0", "accelerate==1.15.0"}

// A plainCase is a model to quantize.
type plainCase struct {
	source string // the directory; its last name is that of the case
	format quant.Format
}

// TestTorchPlainly: what is quantized for transformers loads without options, in the dtype of the
// configuration, to the values of dequantize. What it cannot load is not written.
func TestTorchPlainly(t *testing.T) {
	interpreter := withTorch(t, "transformers does not load the architectures", plainlyWith...)
	sources := made(t, interpreter)
	var cases []plainCase
	for _, name := range append([]string{"gemma2", "granite", "olmo2", "smollm3"}, decodedAll...) {
		for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Tensor, quant.FP8Row, quant.FP8Block, ints("int4-g32"),
			ints("int4-g128"), ints("int8-g128"), ints("int8-row")} {
			cases = append(cases, plainCase{filepath.Join(sources, name), f})
		}
	}
	loadPlainly(t, interpreter, cases)
}

// TestTorchSmolLM2Plainly does the same with a real model, whose head is tied to the embedding.
func TestTorchSmolLM2Plainly(t *testing.T) {
	interpreter := withTorch(t, "transformers does not load SmolLM2", plainlyWith...)
	source := filepath.Join(t.TempDir(), "smollm2")
	writeDecoded(t, smollm2(t), source, safetensors.BF16)
	loadPlainly(t, interpreter, []plainCase{{source, quant.MXFP8}, {source, quant.MXFP4}, {source, quant.NVFP4}})
}

// loadPlainly quantizes models for transformers and loads them there.
func loadPlainly(t *testing.T, interpreter string, cases []plainCase) {
	t.Helper()
	root, result := t.TempDir(), filepath.Join(t.TempDir(), "result.json")
	arguments := []string{result}
	exact := map[string]bool{}
	for _, c := range cases {
		name := filepath.Base(c.source)
		dir := filepath.Join(root, name+" "+c.format.Name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		written, err := quantizeFor(t, "transformers", c.source, filepath.Join(dir, "model"), c.format)
		if err != nil {
			t.Logf("%s in %s: %v", name, c.format, err)
			if !strings.Contains(err.Error(), ": transformers: ") {
				t.Errorf("%s in %s: %v", name, c.format, err)
			}
			continue
		}
		if said := objections(t, "transformers", filepath.Join(dir, "model")); len(said) > 0 {
			t.Errorf("%s in %s: verify says %v", name, c.format, said)
		}
		converted(t, filepath.Join(dir, "model"), filepath.Join(dir, "values"), func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanDequantize(t.Context(), m, safetensors.BF16)
		})
		exact[dir] = c.format.Scale != format.F32 || written == "deepseek" // whose scales it keeps in FP32
		arguments = append(arguments, dir)
	}
	script(t, interpreter, "load_plainly.py", arguments...)
	var got map[string]struct {
		Rejected string  `json:"rejected"`
		Weights  int     `json:"weights"`
		Error    float64 `json:"error"` // largest relative one of an element
		Dtype    string  `json:"dtype"`
		Logits   float64 `json:"logits"` // largest difference, as a part of the largest logit
	}
	readJSON(t, result, &got)
	for _, dir := range arguments[1:] {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r := got[dir]
			// The client rounds FP32 scales of compressed-tensors to BF16, and then the product; our value is
			// rounded once: 2⁻⁹ each, with the second-order terms less than 2⁻⁷.
			bound := 0.0
			if !exact[dir] {
				bound = 0x1p-7
			}
			t.Logf("%d weights, errors of at most %g; logits differ by %g of the largest", r.Weights, r.Error, r.Logits)
			// Logits are in BF16, with 2⁻⁷ between its numbers at most.
			if r.Rejected != "" || r.Weights == 0 || r.Error > bound || r.Logits > 0x1p-7 || r.Dtype != "torch.bfloat16" {
				t.Errorf("%+v, want errors of at most %g", r, bound)
			}
		})
	}
	t.Logf("%d of %d are written", len(arguments)-1, len(cases))
}

// quantizeFor quantizes a checkpoint for a client and returns the convention.
func quantizeFor(t *testing.T, client, source, dst string, f quant.Format) (convention string, err error) {
	t.Helper()
	src, err := hf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	q, err := profile.For(f).Quantizer(f)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), src, convert.QuantizeOptions{Quantizer: q, Client: client})
	if err != nil {
		return "", err
	}
	_, err = plan.Run(t.Context(), dst, convert.RunOptions{})
	return plan.Convention, err
}
