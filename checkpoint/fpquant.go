package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// fpQuant is the convention of FP-Quant's MXFP4 and NVFP4 (fp_quant/module/linear.py of version 0.3.2). Rows of weights are multiplied
// by an orthogonal matrix H, in groups of as many columns as it has rows, and activations at run time: y = (x·H)·(W·H)ᵀ.
//
//	X.qweight                  U8 [out, in/2]       two E2M1 codes of W·H per byte
//	X.scales                   U8 [out, in/block]   E8M0 or E4M3; rows and columns may be padded to multiples of 128 and 4
//	X.weight_global_scale      [1]                  a divisor: W·H = code · scale / global
//	X.forward_hadamard_matrix  [g, g]               H
//
// A weight is read as values, W = (W·H)·Hᵀ, which are those that a client multiplies by, whatever H is.
var fpQuant = Convention{
	Name:        "fp-quant",
	Doc:         "FP-Quant's rotated FP4 (quant_method fp_quant)",
	quantMethod: "fp_quant",
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	patterns:    endings,
	recognize:   recognizeFPQuant,
}

// rotated are the layouts of forward_dtype.
var rotated = map[string]coded{
	"mxfp4": {block: quant.MXFP4.Block.Cols, scale: format.E8M0},
	"nvfp4": {block: quant.NVFP4.Block.Cols, scale: format.E4M3},
}

// maxRotation is the number of rows of the largest matrix (validate_config of FP-Quant).
const maxRotation = 128

func recognizeFPQuant(raw json.RawMessage) (description, error) {
	var config struct {
		Dtype  string    `json:"forward_dtype"`
		Master bool      `json:"store_master_weights"`
		Pseudo bool      `json:"pseudoquantization"`
		Ignore *[]string `json:"modules_to_not_convert"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	c, ok := rotated[config.Dtype]
	switch {
	case !ok:
		return description{}, fmt.Errorf("forward_dtype is %q, which is not supported, only mxfp4 and nvfp4", config.Dtype)
	case config.Master:
		return description{}, errors.New("store_master_weights: its weights are values, which the client rotates and quantizes as it loads " +
			"them: remove quantization_config")
	case config.Pseudo:
		return description{}, errors.New("pseudoquantization: it has values of rotated weights (dqweight) in place of codes, which is not " +
			"supported: store it without pseudoquantization")
	}
	c.name, c.element, c.bits, c.rotation = "rotated-"+config.Dtype, format.E2M1, format.E2M1.Bits(), ".forward_hadamard_matrix"
	c.codes, c.scales, c.global, c.input = ".qweight", ".scales", ".weight_global_scale", ".act_global_scale"
	d := description{coded: []coded{c}, scheme: config.Dtype, ignore: []string{"lm_head"}}
	if config.Ignore != nil {
		d.ignore = *config.Ignore
	}
	return d, nil
}

// endsWith is exactOrRegexp for entries that match the end of a name (replace_with_fp_quant_linear; the same in vLLM).
func endsWith(ignore []string) func(module string) bool {
	return func(module string) bool {
		return slices.ContainsFunc(ignore, func(entry string) bool { return strings.HasSuffix(module, entry) })
	}
}

// fitRotated is fitsCoded for weights that are multiplied by a matrix. It returns what contradicts the layout.
func (m *Model) fitRotated(w *Weight) *Problem {
	c, codes, scales, global := w.coded, w.parts[Codes], w.parts[Scales], w.parts[Global]
	for suffix, part := range map[string]Part{c.rotation: rotation, ".backward_hadamard_matrix": groups} {
		if t, ok := m.Source.Lookup(partName(w.Name, suffix)); ok {
			w.parts[part] = &t
		}
	}
	matrix := w.parts[rotation]
	for _, part := range []struct {
		of     *hf.Tensor
		suffix string
	}{{scales, c.scales}, {global, c.global}, {matrix, c.rotation}} {
		if part.of == nil {
			return problemOf(codes.Name, "%s is missing, without which its codes have no values: fetch the checkpoint again",
				partName(w.Name, part.suffix))
		}
	}
	switch {
	case len(codes.Shape) != 2 || codes.Dtype != safetensors.U8:
		return problemOf(codes.Name, "it is %s %v, and rotated codes are U8 [out, in/2]: fetch it again", codes.Dtype, codes.Shape)
	}
	rows, cols := codes.Shape[0], codes.Shape[1]*2
	blocks := ceilDiv(cols, int64(c.block))
	w.Shape = []int64{rows, cols}
	padded := []int64{ceilDiv(rows, 128) * 128, ceilDiv(blocks, 4) * 4}
	if scales.Dtype != safetensors.U8 && scales.Dtype != storedDtype(c.scale) ||
		!slices.Equal(scales.Shape, []int64{rows, blocks}) && !slices.Equal(scales.Shape, padded) {
		return problemOf(scales.Name, "it is %s %v, and %s of shape %v needs U8 %v, or padded %v: fetch it again", scales.Dtype, scales.Shape,
			c.name, w.Shape, []int64{rows, blocks}, padded)
	}
	_, dense := matrix.Dtype.Dense()
	if n := matrix.Shape; !dense || len(n) != 2 || n[0] != n[1] || n[0] <= 0 || n[0] > maxRotation || n[0]%int64(c.block) != 0 ||
		cols%n[0] != 0 {
		return problemOf(matrix.Name, "it is %s %v, and rows of %d columns are multiplied in groups by a square matrix of whole blocks, "+
			"at most %d columns: fetch it again", matrix.Dtype, matrix.Shape, cols, maxRotation)
	}
	if _, dense := global.Dtype.Dense(); !dense || global.Elements() != 1 {
		return problemOf(global.Name, "it is %s %v, and a global scale is one number: fetch it again", global.Dtype, global.Shape)
	}
	var divisor [1]float32
	if err := readDense(divisor[:], *global, Tile{To: 1, ToCol: 1}.DenseSpans(1)); err != nil {
		return problemOf(global.Name, "%v", err)
	}
	c.divisor = float64(divisor[0])
	if !(c.divisor > 0) || math.IsInf(c.divisor, 1) {
		return problemOf(global.Name, "it is %g, and values are divided by it: fetch it again", c.divisor)
	}
	return nil
}

// readRotated is readCoded for weights that are multiplied by a matrix. Sums are in float64, and each value is rounded once.
func (w *Weight) readRotated(t Tile) (tensor.Dense, error) {
	matrix := w.parts[rotation]
	size := int(matrix.Shape[0])
	h := make([]float32, size*size)
	if err := readDense(h, *matrix, Tile{To: size, ToCol: size}.DenseSpans(size)); err != nil {
		return tensor.Dense{}, err
	}
	plain, codesOnly := *w.coded, *w
	plain.rotation, codesOnly.coded = "", &plain
	whole := Tile{From: t.From, To: t.To, FromCol: t.FromCol / size * size, ToCol: (t.ToCol + size - 1) / size * size}
	y, err := codesOnly.readCoded(whole)
	if err != nil {
		return y, err
	}
	x := tensor.New(t.To-t.From, t.ToCol-t.FromCol)
	for i := range x.Rows {
		row, of := x.Row(i), y.Row(i)
		for j := range row {
			col := t.FromCol + j
			sum := 0.0
			for k, v := range of[col/size*size-whole.FromCol:][:size] {
				sum += float64(v) * float64(h[col%size*size+k])
			}
			row[j] = float32(sum / w.coded.divisor)
		}
	}
	return x, nil
}
