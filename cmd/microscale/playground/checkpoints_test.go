//go:build !js

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/demo"
	"github.com/microscale-go/microscale/cmd/microscale/internal/playground"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// A readCase is a checkpoint that the test gives to the page: its files by name, those of its original, whether to identify its writer,
// and a block to explain, if any; that of the weight that the page suggests, if none is named.
type readCase struct {
	Files    map[string][]byte `json:"files"`
	Original map[string][]byte `json:"original"`
	Identify bool              `json:"identify"`
	Weight   string            `json:"weight"`
	Block    string            `json:"block"`
}

// cases returns good and bad checkpoints, made of the model of the demo.
func cases(t *testing.T) []readCase {
	t.Helper()
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if err := demo.Write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	quantize := func(name string, o convert.QuantizeOptions) map[string][]byte {
		source, err := convert.Open(model)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		plan, err := convert.PlanQuantize(t.Context(), source, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(t.Context(), filepath.Join(dir, name), convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		return filesOf(t, filepath.Join(dir, name))
	}
	nvfp4 := quantize("nvfp4", convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "compressed-tensors"})
	gguf := quantize("model.gguf", convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "gguf"})
	const weights, config = "model.safetensors", "config.json"
	with := func(name string, data []byte) map[string][]byte {
		files := maps.Clone(nvfp4)
		files[name] = data
		return files
	}
	alone := func(name string, data []byte) readCase { return readCase{Files: map[string][]byte{name: data}} }
	endless := append(bytes.Repeat([]byte{0xff}, 7), 0x7f)
	return []readCase{
		{Files: nvfp4, Identify: true, Original: filesOf(t, model), Block: "25"},
		{Files: nvfp4, Identify: true, Block: "0"},
		{Files: gguf, Identify: true, Block: "7"},
		{Files: nvfp4, Block: "999999999"},
		{Files: nvfp4, Block: "1.5"},
		{Files: nvfp4, Weight: "model.<b>none", Block: "1"},
		{Files: filesOf(t, model), Identify: true}, // not quantized
		alone(weights, nvfp4[weights]),
		alone(weights, nvfp4[weights][:len(nvfp4[weights])/2]),
		alone(weights, append(endless, "{}"...)),
		alone(weights, []byte{}),
		alone("text.txt", []byte("no checkpoint")),
		alone("model.gguf", gguf["model.gguf"][:3000]),
		alone("model.gguf", append([]byte("GGUF\x03\x00\x00\x00"), bytes.Repeat(endless, 4)...)),
		alone("two\nlines<b>.safetensors", []byte("short")),
		{Files: map[string][]byte{config: nvfp4[config]}},
		{Files: with(config, []byte(`{"quantization_config": [`))},
		{Files: with("model.safetensors.index.json", []byte(`{"weight_map": {"lost": "other.safetensors"}}`))},
	}
}

// filesOf returns the contents of a file, or of those in a directory, by name.
func filesOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if paths == nil {
		paths = []string{path}
	}
	files := map[string][]byte{}
	for _, p := range paths {
		if files[filepath.Base(p)], err = os.ReadFile(p); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// answers returns what the page must show: answers of this machine about the same files by the same names.
func (c *readCase) answers(t *testing.T) (all []playground.Answer) {
	t.Helper()
	t.Chdir(t.TempDir())
	put := func(files map[string][]byte, dir string, single bool) (source string) {
		if source = dir; single {
			dir = "."
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, data := range files {
			if single || filepath.Ext(name) == ".gguf" {
				source = filepath.Join(dir, name)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return source
	}
	r := playground.Request{Source: put(c.Files, "checkpoint", len(c.Files) == 1)}
	commands := []string{"inspect", "lint"}
	if c.Identify {
		commands = append(commands, "identify")
		if c.Original != nil {
			r.Original = put(c.Original, "original", false)
		}
	}
	if r.Weight, r.Block = c.Weight, c.Block; c.Block != "" {
		commands = append(commands, "block")
	}
	for _, r.Command = range commands {
		request, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var a playground.Answer
		if err := json.Unmarshal(playground.Ask(t.Context(), request), &a); err != nil {
			t.Fatal(err)
		}
		if r.Weight == "" && a.Weights != nil {
			r.Weight = a.Weights[0]
		}
		all = append(all, a)
	}
	return all
}
