package interop

import (
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// mlxArchitectures are those of decodedAll with equal losses in mlx-lm and transformers. Jamba
// and gpt-oss are excluded: their losses differ by 0.02 nats (even unquantized) and 0.003 nats.
var mlxArchitectures = []string{
	"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral", "deepseek_v3", "gemma3_text", "phi3", "glm4",
	"qwen3_next", "mamba", "llava", "qwen2_vl",
}

// TestTorchArchitecturesMLX: mlx-lm runs each architecture with the loss of transformers, or
// verify with `--client mlx` reports that it does not.
func TestTorchArchitecturesMLX(t *testing.T) {
	interpreter := withTorch(t, "mlx-lm does not run the architectures", architecturesWith...)
	mlx := python(t, "mlx[cpu]==0.32.4", "mlx-lm==0.32.2")
	sources, root, text := made(t, interpreter), t.TempDir(), lossText(t)
	var dirs, directories []string
	for _, name := range mlxArchitectures {
		layouts := []layoutOf{{"mlx", quant.MXFP4, "mxfp4", ""}, {"mlx", quant.MXFP8, "mxfp8", ""}, {"mlx", quant.NVFP4, "nvfp4", ""}}
		for _, l := range layouts {
			for _, exclude := range []string{"", "kv_b_proj"} {
				if (exclude != "") && name != "deepseek_v3" {
					continue
				}
				dir := filepath.Join(root, strings.TrimSpace(strings.Join([]string{name, l.String(), exclude}, " ")))
				var patterns []*regexp.Regexp
				if exclude != "" {
					patterns = []*regexp.Regexp{regexp.MustCompile(exclude)}
				}
				if err := l.write(t, filepath.Join(sources, name), dir, patterns...); err != nil {
					t.Fatal(err)
				}
				values(t, dir, dir+"-values")
				dirs, directories = append(dirs, dir), append(directories, dir+"-values")
			}
		}
	}
	want := references(t, interpreter, text, directories)
	result := filepath.Join(t.TempDir(), "result.json")
	script(t, mlx, "run_mlx.py", append([]string{text, lossWindow, result}, dirs...)...)
	got := map[string]loss{}
	readJSON(t, result, &got)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r, said := got[dir], objections(t, "mlx", dir)
			d := math.Abs(r.Nats - want[dir+"-values"])
			t.Logf("mlx-lm %.5f %.100s, transformers %.5f nats per byte; verify says %v", r.Nats, r.Rejected, want[dir+"-values"], said)
			if right := r.Rejected == "" && d < 1e-4; right == (len(said) > 0) { // both compute in F32
				t.Errorf("%g nats apart, rejected %q; verify says %v", d, r.Rejected, said)
			}
		})
	}
}
