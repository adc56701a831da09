package lint

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// A directory is a checkpoint in memory, to damage it.
type directory struct {
	tensors  map[string]entry
	metadata map[string]string
	config   map[string]any
	sidecar  map[string]any // hf_quant_config.json; nil: none
}

type entry struct {
	safetensors.Spec
	data []byte
}

// A source is an unquantized checkpoint: its configuration, and two-dimensional BF16 weights by name, with rows and columns.
type source struct {
	config  map[string]any
	weights map[string][2]int64
}

const layer0 = "model.layers.0."

// dense is a Llama of one layer.
func dense(rows, cols int64) source {
	s := source{map[string]any{"model_type": "llama", "torch_dtype": "bfloat16"}, map[string][2]int64{"lm_head": {rows, cols}}}
	for _, name := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"} {
		s.weights[layer0+name] = [2]int64{rows, cols}
	}
	return s
}

// with returns a source with another configuration, and with further weights of 128×128.
func (s source) with(config map[string]any, modules ...string) source {
	s.config, s.weights = maps.Clone(s.config), maps.Clone(s.weights)
	maps.Copy(s.config, config)
	for _, m := range modules {
		s.weights[m] = [2]int64{128, 128}
	}
	return s
}

// experts is a mixture of two experts of one layer.
func experts(modelType string) source {
	s := dense(128, 128)
	delete(s.weights, layer0+"mlp.gate_proj")
	delete(s.weights, layer0+"mlp.up_proj")
	return s.with(map[string]any{"model_type": modelType, "num_experts": 2}, layer0+"mlp.experts.0.gate_proj", layer0+"mlp.experts.0.up_proj",
		layer0+"mlp.experts.0.down_proj", layer0+"mlp.experts.1.gate_proj", layer0+"mlp.experts.1.up_proj", layer0+"mlp.experts.1.down_proj")
}

// values returns n BF16 numbers below 1, which repeat, so that the corpus of checkpoints is small.
func values(seed uint64, n int64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 0, 2*n)
	for range min(n, 64) {
		data = append(data, byte(r.Uint32()), byte(r.Uint32N(2)<<7|0x3e|r.Uint32N(2)))
	}
	for period := len(data); len(data) < int(2*n); {
		data = append(data, data[len(data)-period])
	}
	return data
}

// write writes the source to dir.
func (s source) write(t *testing.T, dir string) {
	t.Helper()
	d := directory{tensors: map[string]entry{}, config: s.config}
	for name, shape := range s.weights {
		d.set(name+weightSuffix, safetensors.BF16, shape[:], values(uint64(len(name)), shape[0]*shape[1]))
	}
	d.write(t, dir)
}

// set replaces a tensor.
func (d *directory) set(name string, dtype safetensors.Dtype, shape []int64, data []byte) {
	d.tensors[name] = entry{safetensors.Spec{Name: name, Dtype: dtype, Shape: shape}, data}
}

// unquantize replaces the codes and scales of a module by values.
func (d *directory) unquantize(module string, rows, cols int64) {
	for _, suffix := range []string{".weight_packed", ".weight_scale", ".weight_global_scale", ".weight_scale_2", ".weight_scale_inv"} {
		delete(d.tensors, module+suffix)
	}
	d.set(module+weightSuffix, safetensors.BF16, []int64{rows, cols}, values(7, rows*cols))
}

// quantization returns quantization_config.
func (d *directory) quantization() map[string]any {
	return d.config["quantization_config"].(map[string]any)
}

// group returns the first of config_groups.
func (d *directory) group() map[string]any {
	return d.quantization()["config_groups"].(map[string]any)["group_0"].(map[string]any)
}

// ignore adds entries to the ignore list of config.json.
func (d *directory) ignore(entries ...any) {
	list, _ := d.quantization()["ignore"].([]any)
	d.quantization()["ignore"] = append(list, entries...)
}

func readDirectory(t *testing.T, dir string) *directory {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := &directory{tensors: map[string]entry{}, metadata: maps.Clone(f.Metadata())}
	delete(d.metadata, checksum.RecordKey)
	for _, info := range f.Tensors() {
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Fatal(err)
		}
		d.set(info.Name, info.Dtype, info.Shape, data)
	}
	for name, to := range map[string]*map[string]any{hf.ConfigName: &d.config, modelOpt.Sidecar(): &d.sidecar} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			if err := json.Unmarshal(data, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d
}

func (d *directory) write(t *testing.T, dir string) {
	t.Helper()
	var specs []safetensors.Spec
	for _, e := range d.tensors {
		specs = append(specs, e.Spec)
	}
	layout, err := safetensors.NewLayout(specs, d.metadata)
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, layout.FileSize())
	copy(file, layout.HeaderBytes())
	for name, e := range d.tensors {
		offset, _ := layout.Offset(name)
		copy(file[offset:], e.data)
	}
	files := map[string][]byte{"model.safetensors": file}
	for name, content := range map[string]map[string]any{hf.ConfigName: d.config, modelOpt.Sidecar(): d.sidecar} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if content == nil {
			continue
		}
		if files[name], err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// open reads a checkpoint.
func open(t *testing.T, dir string) *checkpoint.Model {
	t.Helper()
	c, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return checkpoint.Read(c)
}

// served reads a checkpoint whose weights are read through a reader, as those on a server are.
func served(t *testing.T, dir string) *checkpoint.Model {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := hf.OpenRemote(dir, []hf.Remote{{Name: filepath.Base(path), Size: int64(len(data)), Reader: bytes.NewReader(data)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return checkpoint.Read(c)
}

// A stored is how a source is quantized.
type stored struct {
	format     quant.Format
	convention string
	scheme     string // "": the default
	rules      []convert.Rule
}

// quantize writes a source quantized, and returns its directory.
func (s source) quantize(t *testing.T, as stored) string {
	t.Helper()
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "out")
	s.write(t, src)
	o := convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: as.format}, Convention: as.convention, Scheme: as.scheme, Rules: as.rules}
	c, err := checkpoint.LookupConvention(as.convention)
	if err != nil {
		t.Fatal(err)
	}
	if only, err := c.With(as.format, as.scheme); err == nil {
		if _, a := only.Scheme(as.format); a == checkpoint.Static {
			o.Calibration = &convert.Calibration{ConstantInputs: true}
		}
	}
	plan, err := convert.PlanQuantize(t.Context(), open(t, src).Source, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst
}
