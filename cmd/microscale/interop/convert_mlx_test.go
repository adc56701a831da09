package interop

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// TestConvertMLX: NVFP4 for mlx has the words and scales of mlx.core.quantize, with which
// mlx_lm.convert ends. Half of the block scales are subnormal in E4M3.
func TestConvertMLX(t *testing.T) {
	const rows, cols, weight = 192, 1024, "model.layers.0.mlp.down_proj.weight"
	interpreter := mlxBits.interpreter(t)
	convention, err := checkpoint.LookupConvention("mlx")
	if err != nil {
		t.Fatal(err)
	}
	p, err := convention.Profile(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Quantizer(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(27, 4))
	values := make([]float32, rows*cols)
	for i := range values {
		values[i] = float32(random.NormFloat64() * 0.1 * math.Exp2(-float64(i/16%4)))
	}
	for _, dtype := range []struct {
		name   safetensors.Dtype
		scalar *format.Scalar
	}{{safetensors.F32, format.F32}, {safetensors.BF16, format.BF16}, {safetensors.F16, format.FP16}} {
		t.Run("dtype="+dtype.name.String(), func(t *testing.T) {
			source, dst := t.TempDir(), filepath.Join(t.TempDir(), "mlx")
			if err := os.WriteFile(filepath.Join(source, "config.json"), []byte(`{"model_type": "llama", "num_hidden_layers": 1}`),
				0o644); err != nil {
				t.Fatal(err)
			}
			data := make([]byte, len(values)*dtype.scalar.Bits()/8)
			if err := tensor.ToBytes(data, values, dtype.scalar); err != nil {
				t.Fatal(err)
			}
			writeTensors(t, filepath.Join(source, "model.safetensors"),
				[]namedTensor{{safetensors.Spec{Name: weight, Dtype: dtype.name, Shape: []int64{rows, cols}}, data}})
			converted(t, source, dst, func(src *hf.Checkpoint) (*convert.Plan, error) {
				return convert.PlanQuantize(t.Context(), src, convert.QuantizeOptions{Quantizer: q, Convention: convention.Name})
			})
			var got struct{ Words, Scales, DifferentWords, DifferentScales, Subnormal int }
			if err := json.Unmarshal(scriptOutput(t, interpreter, "convert_mlx.py", filepath.Join(source, "model.safetensors"),
				filepath.Join(dst, "model.safetensors"), weight), &got); err != nil {
				t.Fatal(err)
			}
			if got.Words != rows*cols/8 || got.Scales != rows*cols/16 || got.DifferentWords+got.DifferentScales > 0 {
				t.Errorf("%d of %d words and %d of %d scales differ", got.DifferentWords, got.Words, got.DifferentScales, got.Scales)
			}
			if got.Subnormal < got.Scales/4 || got.Subnormal > got.Scales*3/4 {
				t.Errorf("%d of %d scales are subnormal", got.Subnormal, got.Scales)
			}
		})
	}
}
