package conversion

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// TestFoldRounded: what is rounded beside blocks is one row of the footer; with each, or without blocks,
// it has separate rows.
func TestFoldRounded(t *testing.T) {
	result := func(name, format string, rows int, sqnr float64) verify.Tensor {
		return verify.Tensor{Name: name, Format: format, Rows: rows, Cols: 8, Result: measure.Result{Elements: int64(rows) * 8, SQNR: sqnr}}
	}
	rest := []verify.Tensor{result("norm", "bf16", 1, 50), result("embedding", "bf16", 64, 60), result("bias", "bf16", 1, math.Inf(1))}
	special := result("special", "bf16", 2, math.Inf(1))
	special.Result.NonFinite = 1
	all := append([]verify.Tensor{result("proj.weight", "nvfp4", 16, 20)}, rest...)
	for _, c := range []struct {
		name    string
		results []verify.Tensor
		each    bool
		want    []string // of the first words of each line with a figure
	}{
		{"beside blocks", all, false, []string{"proj.weight 1 16×8 nvfp4 20.00 20.00", "rounded 2 bf16 55.00 50.00", "exact copies 1"}},
		{"NaN", []verify.Tensor{all[0], special, rest[0]}, false, []string{"proj.weight 1 16×8 nvfp4 20.00 20.00", "special 1 2×8 bf16 -",
			"rounded 1 bf16 50.00"}},
		{"types of GGUF files", []verify.Tensor{all[0], result("down", "q4_k", 2, 30), rest[0]}, false,
			[]string{"proj.weight 1 16×8 nvfp4 20.00 20.00", "down 1 2×8 q4_k 30.00", "rounded 1 bf16 50.00"}},
		{"each", all, true, []string{"proj.weight 1 16×8 nvfp4 20.00 20.00", "norm 1 1×8 bf16 50.00", "embedding 1 64×8 bf16 60.00",
			"bias 1 1×8 bf16"}},
		{"no blocks", rest, false, []string{"norm 1 1×8 bf16 50.00", "embedding 1 64×8 bf16 60.00", "exact copies 1"}},
	} {
		var text strings.Builder
		if err := printErrors(&text, c.results, c.each); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(text.String()) {
			if line = strings.Join(strings.Fields(line), " "); !strings.HasPrefix(line, "weight ") && !strings.HasPrefix(line, "─") {
				lines = append(lines, line)
			}
		}
		ok := len(lines) == len(c.want)
		for i := 0; ok && i < len(lines); i++ {
			ok = strings.HasPrefix(lines[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: got\n%s\nwant rows that begin with\n%s", c.name, strings.Join(lines, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
