package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// packedConfig returns a configuration of packed integers.
func packedConfig(args string) string {
	return `{"model_type": "llama", "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", ` +
		`"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"type": "int", ` + args + `}}}}}`
}

// packInts returns the words of rows of codes of some bits, with zeros at the end of a row.
func packInts(rows, cols, bits int, code func(row, col int) uint64) (data []byte) {
	for i := range rows {
		row := make([]byte, (cols*bits+31)/32*4)
		for j := range cols {
			for k := range bits {
				row[(j*bits+k)/8] |= byte(code(i, j)>>k&1) << ((j*bits + k) % 8)
			}
		}
		data = append(data, row...)
	}
	return data
}

// TestPartialWords: weight_shape tells how many columns are in the words of a row.
func TestPartialWords(t *testing.T) {
	const rows = 4
	for _, c := range []struct {
		bits, cols, group int
		dtype             safetensors.Dtype
	}{{4, 100, 0, safetensors.I64}, {8, 30, 0, safetensors.I64}, {2, 100, 0, safetensors.I32}, {4, 100, 32, safetensors.I64},
		{4, 100, 20, safetensors.I64}, {3, 100, 0, safetensors.I32}, {8, 32, 0, safetensors.I32}} {
		args, groups := fmt.Sprintf(`"num_bits": %d, "strategy": "channel"`, c.bits), 1
		if c.group > 0 {
			args = fmt.Sprintf(`"num_bits": %d, "strategy": "group", "group_size": %d`, c.bits, c.group)
			groups = (c.cols + c.group - 1) / c.group
		}
		code := func(row, col int) uint64 { return uint64(row*31+col*7+1) & (1<<c.bits - 1) }
		shape := dims(rows, int64(c.cols))
		if c.dtype == safetensors.I32 {
			shape = binary.LittleEndian.AppendUint32([]byte{rows, 0, 0, 0}, uint32(c.cols))
		}
		m := readRaw(t, packedConfig(args), nil,
			rawTensor{"q.weight_packed", safetensors.I32, []int64{rows, int64(c.cols*c.bits+31) / 32}, packInts(rows, c.cols, c.bits, code)},
			rawTensor{"q.weight_scale", safetensors.BF16, []int64{rows, int64(groups)}, bytes.Repeat([]byte{0x80, 0x3f}, rows*groups)},
			rawTensor{"q.weight_shape", c.dtype, []int64{2}, shape})
		w, ok := m.Lookup("q.weight")
		if !ok || !slices.Equal(w.Shape, []int64{rows, int64(c.cols)}) || len(m.Problems) > 0 || len(m.Weights) != 1 {
			t.Fatalf("%+v: %d weights, problems %v", c, len(m.Weights), m.Problems)
		}
		checkValues(t, m, "q.weight", func(row, col int) float32 { return float32(code(row, col)) - float32(int(1)<<(c.bits-1)) })
	}
}

// TestPadding: bits behind the last code of any row are an error, of the first row before any is read.
func TestPadding(t *testing.T) {
	const rows, cols = 4, 30 // of 3 bits: 90 of 96
	for row := range rows {
		for bit := cols * 3; bit < 96; bit++ {
			data := packInts(rows, cols, 3, func(int, int) uint64 { return 5 })
			data[row*12+bit/8] |= 1 << (bit % 8)
			m := readRaw(t, packedConfig(`"num_bits": 3, "strategy": "channel"`), nil,
				rawTensor{"q.weight_packed", safetensors.I32, []int64{rows, 3}, data},
				rawTensor{"q.weight_scale", safetensors.BF16, []int64{rows, 1}, bytes.Repeat([]byte{0x80, 0x3f}, rows)},
				rawTensor{"q.weight_shape", safetensors.I64, []int64{2}, dims(rows, cols)})
			if row == 0 {
				if len(m.Problems) != 1 || !strings.Contains(m.Problems[0].Text, "6 padding bits") {
					t.Errorf("bit %d: problems %v", bit, m.Problems)
				}
				continue
			}
			w, ok := m.Lookup("q.weight")
			if !ok {
				t.Fatal(m.Problems)
			}
			if _, err := w.Read(row, row+1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %d has codes behind column 30", row)) {
				t.Errorf("row %d, bit %d: %v", row, bit, err)
			}
			if _, err := w.ReadTile(Tile{From: row, To: row + 1, ToCol: cols - 1}); err != nil {
				t.Errorf("without the last column: %v", err)
			}
		}
	}
}

// TestIntegerCauses: a contradiction in integers is one line about its cause, for all weights that have it.
func TestIntegerCauses(t *testing.T) {
	const words, group = 48, `"strategy": "group", "group_size": 128`
	const g4 = `"num_bits": 4, ` + group
	ones := bytes.Repeat([]byte{0xff}, 4*4*words)
	scale := rawTensor{"weight_scale", safetensors.BF16, []int64{4, 3}, bytes.Repeat([]byte{0x80, 0x3f}, 12)}
	shape := func(of ...int64) rawTensor {
		return rawTensor{"weight_shape", safetensors.I64, []int64{int64(len(of))}, dims(of...)}
	}
	packed := rawTensor{"weight_packed", safetensors.I32, []int64{4, words}, ones}
	far := rawTensor{"weight_g_idx", safetensors.I32, []int64{384}, bytes.Repeat([]byte{0x0f, 0x27, 0, 0}, 384)}
	zeros := rawTensor{"weight_zero_point", safetensors.I32, []int64{1, 3}, make([]byte, 12)}
	for name, c := range map[string]struct {
		args, want string
		lasting    bool // no values are known
		tensors    []rawTensor
	}{
		"sound":    {g4, "", false, []rawTensor{packed, scale, shape(4, 384)}},
		"no shape": {g4, "weight_packed: weight_shape is missing", true, []rawTensor{packed, scale}},
		"too wide": {g4, "weight_shape: it says [4 400], and codes I32 [4 48] of 4 bits hold [4 384]", true,
			[]rawTensor{packed, scale, shape(4, 400)}},
		"rows":       {g4, "weight_shape: it says [3 384]", true, []rawTensor{packed, scale, shape(3, 384)}},
		"huge":       {g4, "weight_shape: it says [4 4611686018427387904]", true, []rawTensor{packed, scale, shape(4, 1<<62)}},
		"negative":   {g4, "weight_shape: it says [4 -384]", true, []rawTensor{packed, scale, shape(4, -384)}},
		"zero":       {g4, "weight_shape: it says [4 0]", true, []rawTensor{packed, scale, shape(4, 0)}},
		"cut":        {g4, "weight_shape: it says [4 380]", true, []rawTensor{packed, scale, shape(4, 380)}},
		"dimensions": {g4, "weight_shape: it is I64 [1]", true, []rawTensor{packed, scale, shape(384)}},
		"3 bits": {`"num_bits": 3, ` + group, "weight_shape: it says [4 384], and codes I32 [4 48] of 3 bits hold [4 512]", true,
			[]rawTensor{packed, scale, shape(4, 384)}},
		"asymmetric": {g4 + `, "symmetric": false`, "weight_packed: weight_zero_point is missing, and its group is asymmetric", true,
			[]rawTensor{packed, scale, shape(4, 384)}},
		"group of 7": {`"num_bits": 4, "strategy": "group", "group_size": 7`, "weight_scale: it is BF16 [4 3], and int4-g7 of shape [4 384]",
			true, []rawTensor{packed, scale, shape(4, 384)}},
		"no scales": {g4, "weight_packed: weight_scale is missing", true, []rawTensor{packed, shape(4, 384)}},
		"empty": {g4, "weight_shape: it says [4 384], and codes I32 [4 0]", true,
			[]rawTensor{{"weight_packed", safetensors.I32, []int64{4, 0}, nil}, scale, shape(4, 384)}},
		"zero points": {g4, "weight_zero_point: its group is symmetric", false,
			[]rawTensor{packed, scale, shape(4, 384), zeros}},
		"groups": {g4, "weight_g_idx: column 0 is in group 9999, and there are 3", true, []rawTensor{packed, scale, shape(4, 384), far}},
		"unused groups": {g4, "weight_g_idx: its group does not have actorder", false, []rawTensor{packed, scale, shape(4, 384),
			{"weight_g_idx", safetensors.I32, []int64{384}, nil}}},
		"ordered": {g4 + `, "actorder": "group"`, "weight_g_idx: column 0 is in group 9999", true,
			[]rawTensor{packed, scale, shape(4, 384), far}},
	} {
		var tensors []rawTensor
		for _, module := range []string{"p.", "q."} {
			for _, r := range c.tensors {
				r.name = module + r.name
				tensors = append(tensors, r)
			}
		}
		m := readRaw(t, packedConfig(c.args), nil, tensors...)
		problems := slices.DeleteFunc(slices.Clone(m.Problems), func(p Problem) bool { return strings.Contains(p.Text, "which vLLM 0.32") })
		if c.want == "" && len(problems) == 0 {
			continue
		}
		if c.want == "" || len(problems) == 0 || len(problems) > 2 || !strings.HasPrefix(problems[0].String(), "p."+c.want) ||
			problems[0].Harmless() == c.lasting {
			t.Errorf("%s: problems %v", name, m.Problems)
		}
	}
}
