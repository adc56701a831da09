package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// TestBlockShapes: blocks of other shapes than those of the named formats: of all lines,
// of a few, and of lengths that are not the kernels'; with themselves and with one whose
// scales change within what packing in assembly takes at a time.
func TestBlockShapes(t *testing.T) {
	const n, k = 37, 160
	r := rand.New(rand.NewPCG(15, 16))
	short := quant.Format{Name: "short", Element: format.E4M3, Scale: format.F32, Block: quant.Shape{Rows: 1, Cols: 16}}
	for _, f := range []quant.Format{
		{Element: format.E4M3, Scale: format.E8M0, Block: quant.Shape{Rows: 0, Cols: 32}},
		{Element: format.E2M1, Scale: format.E8M0, Block: quant.Shape{Rows: 0, Cols: 32}},
		{Element: format.E2M1, Scale: format.E4M3, Block: quant.Shape{Rows: 0, Cols: 16}, Global: true},
		{Element: format.INT8, Scale: format.E8M0, Block: quant.Shape{Rows: 4, Cols: 32}},
		{Element: format.E2M1, Scale: format.E4M3, Block: quant.Shape{Rows: 2, Cols: 16}, Global: true},
		{Element: format.E5M2, Scale: format.F32, Block: quant.Shape{Rows: 3, Cols: 128}},
		{Element: format.E2M3, Scale: format.E8M0, Block: quant.Shape{Rows: 1, Cols: 64}},
	} {
		f.Name = fmt.Sprintf("%s-%s-%dx%d", f.Element, f.Scale, f.Block.Rows, f.Block.Cols)
		b := operand(t, r, f, quant.Rowwise, n, k)
		everyKernel(t, operand(t, r, f, quant.Columnwise, 3, k), b)
		everyKernel(t, operand(t, r, short, quant.Rowwise, 19, k), b)
	}
}
