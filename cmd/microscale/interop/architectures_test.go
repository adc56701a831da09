package interop

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// architecturesWith are the packages for the tests of architectures.
var architecturesWith = []string{"transformers==5.23.0", "compressed-tensors==0.20.0", "accelerate==1.15.0"}

// made returns a directory with small checkpoints of many architectures, written by
// transformers.
func made(t *testing.T, interpreter string) string {
	t.Helper()
	root := t.TempDir()
	script(t, interpreter, "architectures.py", root)
	return root
}

// A layoutOf is the scheme of a convention for a format.
type layoutOf struct {
	convention string
	format     quant.Format
	scheme     string
	profile    string // "": that of the format
}

func (l layoutOf) String() string {
	return strings.Join(strings.Fields(strings.Join([]string{l.convention, l.scheme, l.profile}, " ")), " ")
}

// write quantizes a checkpoint to dst, except for the weights that match exclude. It returns
// the error of quantize.
func (l layoutOf) write(t *testing.T, source, dst string, exclude ...*regexp.Regexp) error {
	t.Helper()
	src, err := hf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := profile.For(l.format)
	if l.profile != "" {
		if p, err = profile.Lookup(l.profile); err != nil {
			t.Fatal(err)
		}
	}
	q, err := p.Quantizer(l.format)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), src, convert.QuantizeOptions{Quantizer: q, Convention: l.convention, Scheme: l.scheme,
		Exclude: exclude})
	if err != nil {
		return err
	}
	_, err = plan.Run(t.Context(), dst, convert.RunOptions{})
	return err
}

// objections returns what a client rejects or misreads in a checkpoint according to package
// client.
func objections(t *testing.T, name, dir string) []checkpoint.Problem {
	t.Helper()
	c, err := client.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	m := checkpoint.Read(source)
	if len(m.Problems) > 0 || m.Quantized() == 0 {
		t.Errorf("%d weights are quantized; problems %v", m.Quantized(), m.Problems)
	}
	return c.Rejects(m)
}

// decodedAll are the architectures that transformers decodes, with the layouts of each.
var (
	decodedAll = []string{
		"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "gemma3_text", "phi3", "glm4",
		"jamba", "qwen3_next", "mamba", "llava", "qwen2_vl", "whisper", "t5", "bert",
	}
	decodedAs = []layoutOf{
		{"compressed-tensors", quant.MXFP8, "MXFP8", ""},
		{"compressed-tensors", quant.MXFP4, "MXFP4A16", ""},
		{"compressed-tensors", quant.NVFP4, "NVFP4A16", ""},
		{"compressed-tensors", quant.NVFP4, "NVFP4A16", "ggml"},
		{"compressed-tensors", quant.FP8Tensor, "FP8_TOKEN", ""},
		{"compressed-tensors", quant.FP8Row, "FP8_DYNAMIC", ""},
		{"compressed-tensors", quant.FP8Block, "FP8_BLOCK", ""},
		{"deepseek", quant.FP8Block, "FP8", ""},
		{"gpt-oss", quant.MXFP4, "MXFP4", ""},
	}
)

// TestTorchArchitectures: transformers decodes each architecture to the values of dequantize,
// bit for bit, or verify with `--client transformers` reports that it does not.
func TestTorchArchitectures(t *testing.T) {
	interpreter := withTorch(t, "transformers does not decode the architectures", architecturesWith...)
	sources, root := made(t, interpreter), t.TempDir()
	result := filepath.Join(t.TempDir(), "result.json")
	arguments := []string{result}
	for _, name := range decodedAll {
		for _, l := range decodedAs {
			if (l.convention == "gpt-oss") != (name == "gpt_oss" && l.format.Name == quant.MXFP4.Name) {
				continue
			}
			dir := filepath.Join(root, name+" "+l.String())
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := l.write(t, filepath.Join(sources, name), filepath.Join(dir, "model")); err != nil {
				t.Fatal(err)
			}
			values := safetensors.F32
			if l.format.Global {
				values = safetensors.BF16 // which transformers decodes NVFP4 to
			}
			converted(t, filepath.Join(dir, "model"), filepath.Join(dir, "values"),
				func(m *hf.Checkpoint) (*convert.Plan, error) { return convert.PlanDequantize(t.Context(), m, values) })
			arguments = append(arguments, dir)
		}
	}
	script(t, interpreter, "decode_architectures.py", arguments...)
	var got map[string]struct {
		Failed    string   `json:"failed"`   // of our values
		Rejected  string   `json:"rejected"` // by transformers
		Weights   int      `json:"weights"`
		Different []string `json:"different"`
		Ratio     float64  `json:"ratio"`
		Equal     bool     `json:"logits equal"`
	}
	readJSON(t, result, &got)
	for _, dir := range arguments[1:] {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r, said := got[dir], objections(t, "transformers", filepath.Join(dir, "model"))
			// With dequantize=True it decodes what it cannot load without options (TestTorchPlainly).
			said = slices.DeleteFunc(said, func(p checkpoint.Problem) bool {
				return strings.Contains(p.Text, "initializes its weight before it loads the codes")
			})
			right := r.Rejected == "" && len(r.Different) == 0 && r.Weights > 0 && r.Equal
			switch {
			case r.Failed != "":
				t.Errorf("our values: %s", r.Failed)
			case right && len(said) > 0:
				t.Errorf("%d weights are decoded to our values, but verify says %v", r.Weights, said)
			case !right && len(said) == 0:
				t.Errorf("rejected %q, different %q by %g, logits equal: %v; verify says nothing", r.Rejected, r.Different, r.Ratio, r.Equal)
			case right:
				t.Logf("%d weights and logits equal", r.Weights)
			case r.Rejected != "":
				t.Logf("rejected, and named: %.100s", r.Rejected)
			default:
				t.Logf("misread by a factor of up to %.3g, and named", r.Ratio)
			}
		})
	}
}
