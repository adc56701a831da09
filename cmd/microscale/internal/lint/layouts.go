package lint

import (
	"bytes"
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// layoutRules are about how tensors hold codes and scales.
var layoutRules = []Rule{
	{
		ID: "L30", Name: "e8m0-as-number", Severity: Error, check: bytesAsNumbers,
		explains: []string{structure},
		What:     "scales of 128×128 blocks are bytes of powers of two, and the convention has numbers",
		Why:      "clients copy the bytes as numbers: 127 instead of 1",
		Remedy:   "store the scales in F32",
		Source:   "vllm#51946",
	},
	{
		ID: "L36", Name: "expert-axis", Severity: Error, clients: engines, check: expertAxis,
		What:   "experts are numbered after their projection: experts.gate_proj.0 (by the names)",
		Why:    "the client looks for experts.0.gate_proj, and leaves out what it does not find",
		Remedy: "rename the tensors",
		Source: "vllm#40885",
	},
	{
		ID: "L37", Name: "fused-3d-scales", Severity: Error, clients: engines, check: underscoreScales,
		explains: []string{structure},
		What:     "scales of all experts of a layer are in tensors such as gate_up_proj_weight_scale (by the names)",
		Why:      "the client drops these tensors, and its experts are NaN",
		Remedy:   "store each expert alone, with its scales",
		Source:   "vllm#46641",
	},
	{
		ID: "L42", Name: "pre-quant-scale", Severity: Error, clients: []string{"vllm", "llamacpp", "ollama"}, check: preQuantScales,
		What:   "inputs of a weight are scaled by pre_quant_scale",
		Why:    "the client rejects the tensor (vLLM 0.32), or computes with other inputs than the weight was quantized for",
		Remedy: "fold the factors into the norm before, or quantize without AWQ",
		Source: "layers/quantization/modelopt.py of vLLM 0.32",
	},
	{
		ID: "L62", Name: "rotation-set", Severity: Error, Needs: Scalars, clients: []string{"vllm"}, check: rotations,
		What:   "weights of a fused set are rotated by different matrices, or have different divisors (FP-Quant)",
		Why:    "the client keeps those of one weight, and the others are multiplied by inputs of another rotation, or have another size",
		Remedy: "quantize again with one matrix",
		Source: "layers/quantization/fp_quant.py of vLLM 0.32",
	},
	{
		ID: "L63", Name: "padded-scales", Severity: Error, clients: []string{"vllm"}, check: paddedScales,
		What:   "scales of FP-Quant are padded to 128 rows or 4 columns, in the dimension that the client does not divide",
		Why:    "the client's parameter has no padding, and it stops as it loads the weight",
		Remedy: "store the scales without padding",
		Source: "layers/quantization/fp_quant.py and layers/linear.py of vLLM 0.32",
	},
	{
		ID: "L64", Name: "rotation-matrix", Severity: Error, Needs: Scalars, check: orthogonal,
		What:   "the matrix of a rotated weight (FP-Quant) is not orthogonal, or has NaN or Inf",
		Why:    "activations that are multiplied by it, times the rotated weight, are not their product with the weight",
		Remedy: "fetch the checkpoint again",
		Source: "fp_quant/module/linear.py of FP-Quant 0.3.2",
	},
	{
		ID: "L65", Name: "rotation-size", Severity: Error, clients: []string{"vllm"}, check: rotationSizes,
		What:   "the matrix of a rotated weight has another size than hadamard_group_size of quantization_config (FP-Quant)",
		Why:    "the client's parameter has the size of the configuration, and it stops as it loads the matrix",
		Remedy: "correct hadamard_group_size, or fetch the checkpoint again",
		Source: "layers/quantization/fp_quant.py of vLLM 0.32",
	},
}

// bytesAsNumbers: the scales of a block of FP8 codes are numbers in every convention with 128×128 blocks and these names.
func bytesAsNumbers(c *checker) {
	if c.config.method != "fp8" {
		return
	}
	for _, t := range c.Source.Tensors() {
		weight, ok := strings.CutSuffix(t.Name, "_scale_inv")
		codes, has := c.Source.Lookup(weight)
		if !ok || !has || codes.Dtype != safetensors.F8E4M3 || t.Dtype != safetensors.U8 && t.Dtype != safetensors.F8E8M0 {
			continue
		}
		if t.Dtype == safetensors.U8 || !c.config.powers {
			c.report(weight, "its scales are %s, and clients read numbers", t.Dtype)
		}
	}
}

var (
	projectionFirst = regexp.MustCompile(`\.experts\.[a-z][a-z0-9_]*\.\d+\.`)
	underscored     = regexp.MustCompile(`^(.*\.experts\.[a-z_]+_proj)_(weight_scale|weight_scale_2|input_scale)$`)
)

func expertAxis(c *checker) {
	for _, w := range c.Weights {
		if projectionFirst.MatchString(w.Name) && len(w.Shape) == 2 {
			c.report(w.Name, "the client looks for the number of an expert before its projection")
		}
	}
}

func underscoreScales(c *checker) {
	var seen []string
	for _, t := range c.Source.Tensors() {
		found := underscored.FindStringSubmatch(t.Name)
		if found == nil {
			continue
		}
		if _, ok := c.Source.Lookup(found[1]); ok && !slices.Contains(seen, found[1]) {
			seen = append(seen, found[1])
			c.report(found[1], "its scales are in %s, which the client drops", t.Name)
		}
	}
}

func preQuantScales(c *checker) {
	for _, t := range c.Source.Tensors() {
		module, ok := strings.CutSuffix(t.Name, ".pre_quant_scale")
		if w, has := c.Lookup(module + weightSuffix); ok && has {
			c.report(w.Name, "its inputs are to be multiplied by %s, and the client does not", t.Name)
		}
	}
}

// joined are modules that join a fused set in one tensor of the files.
var joined = []string{"qkv_proj", "gate_up_proj"}

// divided returns for the modules that vLLM divides between ranks whether it does so by columns of the weight (RowParallelLinear) or by its
// rows (ColumnParallelLinear, and those that join several): by rows the members of fused sets, by columns what leads back from them, a
// module beside a set, with as many rows as the set has columns. Others are not divided, or not known. Of a tensor the client takes as
// many rows, or columns, as its parameter has, and compares the other dimension.
func (c *checker) divided() map[*checkpoint.Weight]bool {
	parent := func(w *checkpoint.Weight) (string, string) {
		module := moduleOf(w.Name)
		i := strings.LastIndexByte(module, '.')
		return module[:max(0, i)], module[i+1:]
	}
	byColumns, width := map[*checkpoint.Weight]bool{}, map[string]int64{} // columns of the set of a module
	for _, w := range c.Weights {
		of, name := parent(w)
		if _, set := c.Family().FusedWith(w.Name); len(w.Shape) == 2 && (set != nil || slices.Contains(joined, name)) {
			byColumns[w], width[of] = false, w.Shape[1]
		}
	}
	for _, w := range c.Weights {
		of, _ := parent(w)
		if _, member := byColumns[w]; !member && len(w.Shape) == 2 && w.Shape[0] == width[of] {
			byColumns[w] = true
		}
	}
	return byColumns
}

// paddedScales: scales have a row for each of the weight, and a column for each block.
func paddedScales(c *checker) {
	f, err := quant.Lookup(c.Scheme)
	if c.config.method != "fp_quant" || err != nil {
		return
	}
	divided := c.divided()
	for _, w := range c.Weights {
		scales, ok := w.Part(checkpoint.Scales)
		if !ok || !w.Decoded() {
			continue
		}
		want := []int64{w.Shape[0], w.Shape[1] / int64(f.Block.Cols)}
		rows, cols := scales.Shape[0] != want[0], scales.Shape[1] != want[1]
		byColumns, known := divided[w]
		if rows && cols || rows && known && byColumns || cols && known && !byColumns {
			c.report(w.Name, "its scales are %v, padded, and the client has %v", scales.Shape, want)
		}
	}
}

// rotations: fused weights share one matrix and one divisor.
func rotations(c *checker) {
	c.sets(func(weights []*checkpoint.Weight) {
		for _, suffix := range []string{".forward_hadamard_matrix", ".weight_global_scale", ".act_global_scale"} {
			var first hf.Tensor
			var values []byte // of it
			for _, w := range weights {
				t, ok := c.Source.Lookup(moduleOf(w.Name) + suffix)
				if !ok || !w.Decoded() {
					continue
				}
				data, err := read(t)
				if err != nil {
					c.err = err
					return
				}
				if values == nil {
					first, values = t, data
				}
				if t.Dtype != first.Dtype || !bytes.Equal(values, data) {
					c.report(w.Name, "%s differs from %s, and the client fuses them into one module", t.Name, first.Name)
				}
			}
		}
	})
}

// eachMatrix calls f with the matrices of rotated weights, which are square.
func (c *checker) eachMatrix(f func(w *checkpoint.Weight, matrix hf.Tensor, size int)) {
	for _, w := range c.Weights {
		if t, ok := c.Source.Lookup(moduleOf(w.Name) + ".forward_hadamard_matrix"); ok && w.Decoded() && c.config.method == "fp_quant" {
			f(w, t, int(t.Shape[0]))
		}
	}
}

// orthogonal: the product of each two rows is 0, and that of a row with itself 1.
func orthogonal(c *checker) {
	const tolerance = 0.01 // of a product; BF16 changes the square of a number by 1/256 at most
	c.eachMatrix(func(w *checkpoint.Weight, matrix hf.Tensor, size int) {
		data, err := read(matrix)
		if err != nil {
			c.err = err
			return
		}
		h := make([]float32, size*size)
		dtype, _ := matrix.Dtype.Dense()
		for i := range h {
			code, size := [4]byte{}, dtype.StoredBits()/8
			copy(code[:], data[i*size:][:size])
			h[i] = dtype.Decode(binary.LittleEndian.Uint32(code[:]))
		}
		for i := range size {
			for j := range i + 1 {
				sum, want := 0.0, 0.0
				for k, v := range h[i*size:][:size] {
					sum += float64(v) * float64(h[j*size+k])
				}
				if i == j {
					want = 1
				}
				if !(math.Abs(sum-want) <= tolerance) {
					c.report(w.Name, "%s is not orthogonal: rows %d and %d have the product %.3g, want %g", matrix.Name, j, i, sum, want)
					return
				}
			}
		}
	})
}

func rotationSizes(c *checker) {
	c.eachMatrix(func(w *checkpoint.Weight, matrix hf.Tensor, size int) {
		if want := c.config.rotation; want != 0 && want != size {
			c.report(w.Name, "%s is %v, and hadamard_group_size is %d", matrix.Name, matrix.Shape, want)
		}
	})
}
