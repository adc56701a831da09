package identify

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// TestPrintBlock: a row for each element at its place, with marks where a writer differs from the file.
func TestPrintBlock(t *testing.T) {
	b := Block{Weight: "w", Format: "nvfp4", Block: 5, Row: 10, Col: 32, Rows: 2, Cols: 2, Values: []show.Number{1, 2, 3, 4}}
	b.Writers = []blockCodes{{Name: "file", Scale: 0.5, Global: 2, Hex: []string{"0x1", "0x2", "0x3", "0x4"},
		Decoded: []show.Number{0.5, 1, 1.5, 2}, Codes: make([]byte, 4)},
		{Name: "te", Scale: 0.75, Global: 2, Hex: []string{"0x1", "0x2", "0x3", "0x5"}}}
	var out strings.Builder
	if err := b.Print(&out, false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if fields := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \n|│─+┼┌┐└┘├┤┬┴-", c) }); len(fields) > 0 {
			got = append(got, strings.Join(fields, " "))
		}
	}
	want := "w: nvfp4, block 5: 2×2 from row 10, column 32\nrow column original decoded file te\nglobal 2 2\nscale 0.5 0.75 *\n" +
		"10 32 1 0.5 0x1 0x1\n10 33 2 1 0x2 0x2\n11 32 3 1.5 0x3 0x3\n11 33 4 2 0x4 0x5 *"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	b.Values[1] = show.Number(math.Inf(1))
	out.Reset()
	if err := b.Print(&out, true); err != nil || !strings.Contains(out.String(), "null") {
		t.Errorf("of an infinite value, error %v, got %s", err, out.String())
	}
}

// TestPartialBlock: the last block of a weight whose rows and columns are no multiple of the block, and one beyond the first tile.
func TestPartialBlock(t *testing.T) {
	source := opened(t, written(t, 1, 200, 160))
	for _, tc := range []struct {
		f                            quant.Format
		number, row, col, rows, cols int
	}{{quant.FP8Block, 3, 128, 128, 72, 32}, {quant.FP8Block, 2, 128, 0, 72, 128}, {quant.FP8Row, 199, 199, 0, 1, 160},
		{quant.MXFP4, 7, 1, 64, 1, 32}, {quant.FP8Tensor, 0, 0, 0, 200, 160}} {
		plan, err := convert.PlanQuantize(t.Context(), source.Source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.f},
			Convention: "plain"})
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "quantized.safetensors")
		if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		b, err := BlockOf(t.Context(), opened(t, dst), source, "model.gauss.weight", tc.number)
		if err != nil {
			t.Fatal(err)
		}
		if b.Row != tc.row || b.Col != tc.col || b.Rows != tc.rows || b.Cols != tc.cols || len(b.Values) != tc.rows*tc.cols {
			t.Errorf("%s: block %d is %d×%d from %d, %d", tc.f, tc.number, b.Rows, b.Cols, b.Row, b.Col)
		}
		for _, w := range b.Writers[:2] {
			if len(w.Codes) != tc.rows*tc.cols || string(w.Codes) != string(b.Writers[0].Codes) || w.Scale != b.Writers[0].Scale {
				t.Errorf("%s: %d codes of %s, want those of the file", tc.f, len(w.Codes), w.Name)
			}
		}
	}
}
