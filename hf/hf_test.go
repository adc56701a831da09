package hf

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

const indexFile = safetensors.IndexName

// shardBytes returns a safetensors file with tensors of the given names. The data of each is its name.
func shardBytes(t testing.TB, tensors ...string) string {
	t.Helper()
	var specs []safetensors.Spec
	for _, name := range tensors {
		specs = append(specs, safetensors.Spec{Name: name, Dtype: safetensors.U8, Shape: []int64{int64(len(name))}})
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := bytes.Clone(layout.HeaderBytes())
	for _, info := range layout.Tensors() {
		file = append(file, info.Name...)
	}
	return string(file)
}

// indexBytes returns the index of a weight map.
func indexBytes(t testing.TB, weights map[string]string) string {
	t.Helper()
	data, err := (&safetensors.Index{WeightMap: weights}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// writeTree writes files, given by their path with slashes, and returns their directory. A path that
// ends in a slash is an empty folder. Content that starts with "-> " makes a symbolic link.
func writeTree(t testing.TB, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		folder := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			folder = path
		}
		err := os.MkdirAll(folder, 0o777)
		if target, ok := strings.CutPrefix(tree[name], "-> "); ok && err == nil {
			err = os.Symlink(filepath.FromSlash(target), path)
		} else if folder != path && err == nil {
			err = os.WriteFile(path, []byte(tree[name]), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, path string) *Checkpoint {
	t.Helper()
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func tensorNames(c *Checkpoint) string {
	var names []string
	for _, tensor := range c.Tensors() {
		names = append(names, tensor.Shard.Name+":"+tensor.Name)
	}
	return strings.Join(names, " ")
}

func TestShards(t *testing.T) {
	x, y, z := shardBytes(t, "x2", "x1"), shardBytes(t, "y"), shardBytes(t, "z")
	for _, test := range []struct {
		name    string
		tree    map[string]string
		path    string // in the directory
		tensors string
		extra   string
	}{
		{name: "single", tree: map[string]string{"any.safetensors": x, "config.json": "{}", "b.safetensors": y},
			path: "any.safetensors", tensors: "any.safetensors:x1 any.safetensors:x2"},
		{name: "single-any-suffix", tree: map[string]string{"weights": y}, path: "weights", tensors: "weights:y"},
		{name: "one", tree: map[string]string{"model.safetensors": x},
			tensors: "model.safetensors:x1 model.safetensors:x2"},
		{name: "one-wins", tree: map[string]string{"model.safetensors": y, "a.safetensors": x, "b/c.safetensors": z},
			tensors: "model.safetensors:y", extra: "a.safetensors b/c.safetensors"},
		{name: "all", tree: map[string]string{"b.safetensors": y, "a.safetensors": x, ".hidden.safetensors": z, "f.safetensors/": ""},
			tensors: "a.safetensors:x1 a.safetensors:x2 b.safetensors:y"},
		{name: "all-numbered", tree: map[string]string{"m-00002-of-00002.safetensors": y, "m-00001-of-00002.safetensors": x},
			tensors: "m-00001-of-00002.safetensors:x1 m-00001-of-00002.safetensors:x2 m-00002-of-00002.safetensors:y"},
		{name: "index", tree: map[string]string{"b.safetensors": x, "a.safetensors": y, "consolidated.safetensors": z,
			indexFile: indexBytes(t, map[string]string{"x1": "b.safetensors", "x2": "b.safetensors", "y": "a.safetensors"})},
			tensors: "a.safetensors:y b.safetensors:x1 b.safetensors:x2", extra: "consolidated.safetensors"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := writeTree(t, test.tree)
			c := open(t, filepath.Join(dir, test.path))
			if got := tensorNames(c); got != test.tensors {
				t.Errorf("tensors: got %s, want %s", got, test.tensors)
			}
			if got := strings.Join(c.Extra(), " "); got != test.extra {
				t.Errorf("extra: got %q, want %q", got, test.extra)
			}
			if _, index := test.tree[indexFile]; c.Index != index {
				t.Errorf("Index: got %t", c.Index)
			}
			if c.Single != (test.path != "") {
				t.Errorf("Single: got %t", c.Single)
			}
			for _, tensor := range c.Tensors() {
				got := make([]byte, len(tensor.Name)-1)
				if err := c.ReadTensorAt(tensor.Name, got, 1); err != nil || string(got) != tensor.Name[1:] {
					t.Errorf("tensor %s: read %q, %v", tensor.Name, got, err)
				}
			}
		})
	}
}

func TestReadTensorAtErrors(t *testing.T) {
	dir := writeTree(t, map[string]string{"model.safetensors": shardBytes(t, "x")})
	c := open(t, dir)
	if err := c.ReadTensorAt("y", nil, 0); err == nil || err.Error() != dir+`: tensor "y": the checkpoint has no such tensor` ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing tensor: got %v, want fs.ErrNotExist", err)
	}
	if _, err := c.Floats("y"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Floats of a missing tensor: got %v, want fs.ErrNotExist", err)
	}
	if _, err := c.Floats("x"); err == nil || !strings.Contains(err.Error(), "got dtype U8, want a floating-point dtype") {
		t.Errorf("Floats of U8: got %v", err)
	}
	if err := c.ReadTensorAt("x", make([]byte, 2), 0); err == nil {
		t.Error("read past the end of a tensor: got no error")
	}
}

// missingFiles are the cases of TestErrors in which a file does not exist.
var missingFiles = []string{"not-there", "broken-link", "gap", "last-missing", "index-broken-link", "index-missing-file",
	"config-broken-link"}

func TestErrors(t *testing.T) {
	x, y := shardBytes(t, "x"), shardBytes(t, "y")
	index := func(weights map[string]string) string { return indexBytes(t, weights) }
	for _, test := range []struct {
		name string
		tree map[string]string
		path string // in the directory
		want string // after the path of the directory
	}{
		{name: "not-there", path: "org/model",
			want: "/org/model: no such file or directory: name a checkpoint directory or file"},
		{name: "unfinished-run", tree: map[string]string{"checkpoint/step-00000043/state.json": "{}",
			"checkpoint/step-00000043/state.safetensors": ""},
			want: `: the directory has no .safetensors file, but "checkpoint/step-00000043" is of an unfinished training run: complete the ` +
				`run first`},
		{name: "empty-directory", want: ": the directory is empty: name a checkpoint directory"},
		{name: "no-weights", tree: map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""},
			want: `: the directory has no .safetensors file (found "a", "b", "c", 2 more): name a checkpoint directory`},
		{name: "pytorch", tree: map[string]string{"config.json": "{}", "pytorch_model.BIN": ""},
			want: `: the directory has no .safetensors file, but "pytorch_model.BIN" has PyTorch weights: convert the weights to safetensors first`},
		{name: "hub-cache", tree: map[string]string{"snapshots/abc/model.safetensors": x, "blobs/123": x},
			want: `: the directory has no .safetensors file, but "snapshots/abc/model.safetensors" is one: name the directory of that file`},
		{name: "parent", tree: map[string]string{"m/model.safetensors": x},
			want: `: the directory has no .safetensors file, but "m/model.safetensors" is one: name the directory of that file`},
		{name: "gguf-directory", tree: map[string]string{"org/m.gguf": "GGUF"}, path: "org",
			want: `/org: the directory has no .safetensors file, but "m.gguf" has GGUF weights: name that file`},
		{name: "gguf", tree: map[string]string{"m.gguf": "GGUF"}, path: "m.gguf",
			want: "/m.gguf: this file has GGUF weights: convert the weights to safetensors first"},
		{name: "index-as-file", tree: map[string]string{indexFile: "{}"}, path: indexFile,
			want: "/" + indexFile + ": this is the index of a sharded checkpoint: name its directory"},
		{name: "bad-shard", tree: map[string]string{"model.safetensors": "abc"},
			want: "/model.safetensors: byte 3: the file has 3 bytes, fewer than the 8 of the header's length: the file is incomplete; fetch " +
				"it again"},
		{name: "broken-link", tree: map[string]string{"model.safetensors": "-> gone"},
			want: "/model.safetensors: no such file or directory: this is a broken link; fetch the checkpoint again"},
		{name: "circular-link", tree: map[string]string{"model.safetensors": "-> model.safetensors"},
			want: "/model.safetensors: too many levels of symbolic links: this is a broken link; fetch the checkpoint again"},

		{name: "overlap", tree: map[string]string{"a.safetensors": x, "b.safetensors": x},
			want: `/b.safetensors: tensor "x": the tensor is also in "a.safetensors": remove the file that does not belong to the checkpoint, ` +
				`or name a single file`},
		{name: "gap", tree: map[string]string{"m-00001-of-00003.safetensors": x, "m-00003-of-00003.safetensors": y},
			want: `/m-00001-of-00003.safetensors: shard "m-00002-of-00003.safetensors" does not exist, and there is no index: fetch the ` +
				`checkpoint again`},

		{name: "last-missing", tree: map[string]string{"m-00001-of-00003.safetensors": x, "m-00002-of-00003.safetensors": y},
			want: `/m-00001-of-00003.safetensors: shard "m-00003-of-00003.safetensors" does not exist, and there is no index: fetch the ` +
				`checkpoint again`},
		{name: "index-without-shard", tree: map[string]string{indexFile: index(map[string]string{"x": "m-00001-of-00002.safetensors"}),
			"m-00001-of-00002.safetensors": x, "m-00002-of-00002.safetensors": y},
			want: "/" + indexFile + `: the index names no tensor of "m-00002-of-00002.safetensors", which must exist by the names of the ` +
				`others: the index is truncated: fetch the checkpoint again`},
		{name: "index-total", tree: map[string]string{indexFile: `{"metadata": {"total_size": 1000}, "weight_map": {"x": "a.safetensors"}}`,
			"a.safetensors": x, "b.safetensors": y},
			want: "/" + indexFile + ": got 1000 bytes for all tensors, and 1 for those that the index names: the index is truncated: correct " +
				"the index, or fetch the checkpoint again"},

		{name: "index-broken-link", tree: map[string]string{indexFile: "-> gone", "model.safetensors": x},
			want: "/" + indexFile + ": no such file or directory: this is a broken link; fetch the checkpoint again"},
		{name: "index-empty", tree: map[string]string{indexFile: `{"weight_map":{}}`, "model.safetensors": x},
			want: "/" + indexFile + ": the index names no tensors: fetch the checkpoint again"},
		{name: "index-escapes", tree: map[string]string{indexFile: `{"weight_map":{"x":"../a.safetensors"}}`},
			want: "/" + indexFile + `: tensor "x": byte 15: weight_map: the file name "../a.safetensors" could lead out of the directory of the ` +
				`index: correct the index, or fetch it again`},
		{name: "index-missing-file", tree: map[string]string{"a.safetensors": x,
			indexFile: index(map[string]string{"x": "a.safetensors", "z": "c.safetensors", "y": "c.safetensors", "w": "d.safetensors"})},
			want: "/" + indexFile + `: tensor "y": the index names the file "c.safetensors", which does not exist (2 of 3 files are missing): ` +
				`fetch the missing files`},
		{name: "index-missing-tensor", tree: map[string]string{"a.safetensors": x,
			indexFile: index(map[string]string{"x": "a.safetensors", "y": "a.safetensors"})},
			want: "/" + indexFile + `: tensor "y": the index has it in "a.safetensors", but it is in no file: correct the index, or fetch the ` +
				`checkpoint again`},
		{name: "index-unlisted-file", tree: map[string]string{"a.safetensors": x, "b.safetensors": "damaged", "c.safetensors": y,
			"d.safetensors": x,
			indexFile:       index(map[string]string{"x": "a.safetensors", "y": "a.safetensors"})},
			want: "/" + indexFile + `: tensor "y": the index has it in "a.safetensors", but it is in "c.safetensors", which the index does not ` +
				`name: correct the index, or fetch the checkpoint again`},
		{name: "index-other-shard", tree: map[string]string{"a.safetensors": x, "b.safetensors": y,
			indexFile: index(map[string]string{"x": "b.safetensors", "y": "a.safetensors"})},
			want: "/" + indexFile + `: tensor "x": the index has it in "b.safetensors", but it is in "a.safetensors": correct the index, or ` +
				`fetch the checkpoint again`},
		{name: "index-unlisted-tensor", tree: map[string]string{"a.safetensors": shardBytes(t, "x", "y"),
			indexFile: index(map[string]string{"x": "a.safetensors"})},
			want: `/a.safetensors: tensor "y": the tensor is not in ` + indexFile + ": correct the index, or fetch the checkpoint again"},
		{name: "index-overlap", tree: map[string]string{"a.safetensors": x, "b.safetensors": shardBytes(t, "x", "y"),
			indexFile: index(map[string]string{"x": "a.safetensors", "y": "b.safetensors"})},
			want: `/b.safetensors: tensor "x": the tensor is also in "a.safetensors": remove the file that does not belong to the checkpoint, ` +
				`or name a single file`},

		{name: "config-array", tree: map[string]string{"config.json": "[]", "model.safetensors": x},
			want: "/config.json: the configuration is not a JSON object: fetch the checkpoint again"},
		{name: "config-null", tree: map[string]string{"config.json": "null", "model.safetensors": x},
			want: "/config.json: the configuration is not a JSON object: fetch the checkpoint again"},
		{name: "config-architectures", tree: map[string]string{"config.json": `{"architectures": 5}`, "model.safetensors": x},
			want: "/config.json: architectures is not a list of names: fetch the checkpoint again"},
		{name: "config-type", tree: map[string]string{"config.json": `{"model_type": ["llama"]}`, "model.safetensors": x},
			want: "/config.json: model_type is not a name: fetch the checkpoint again"},
		{name: "config-truncated", tree: map[string]string{"config.json": `{"a": Infinity`, "model.safetensors": x},
			want: "/config.json: byte 13: invalid JSON: unexpected end of JSON input: fetch the checkpoint again"},
		{name: "config-not-json", tree: map[string]string{"config.json": `{"a": Info}`, "model.safetensors": x},
			want: "/config.json: byte 6: invalid JSON: invalid character 'I' looking for beginning of value: fetch the checkpoint again"},
		{name: "config-folder", tree: map[string]string{"config.json/": "", "model.safetensors": x},
			want: "/config.json: not a regular file: fetch the checkpoint again"},
		{name: "config-broken-link", tree: map[string]string{"config.json": "-> gone", "model.safetensors": x},
			want: "/config.json: no such file or directory: this is a broken link; fetch the checkpoint again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := writeTree(t, test.tree)
			c, err := Open(filepath.Join(dir, test.path))
			if err == nil {
				c.Close()
				t.Fatal("no error")
			}
			if got, ok := strings.CutPrefix(err.Error(), dir); !ok || got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if missing := slices.Contains(missingFiles, test.name); errors.Is(err, fs.ErrNotExist) != missing {
				t.Errorf("errors.Is(err, fs.ErrNotExist): got %t, want %t", !missing, missing)
			}
			if _, ok := errors.AsType[*safetensors.ContainerError](err); !ok && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ELOOP) {
				t.Errorf("got a %T, want a ContainerError", err)
			}
		})
	}
}

func TestOpenConfigTooLarge(t *testing.T) {
	dir := writeTree(t, map[string]string{"model.safetensors": shardBytes(t, "x"), "config.json": "{}"})
	if err := os.Truncate(filepath.Join(dir, "config.json"), maxConfig+1); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), "the file is larger than the limit of 64 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, test := range []struct {
		name, config, dtype, quantization string
	}{
		{name: "empty", config: "{}"},
		{name: "old", config: `{"torch_dtype": "bfloat16", "dtype": 1}`, dtype: "bfloat16"},
		{name: "new", config: `{"torch_dtype": null, "dtype": "float16"}`, dtype: "float16"},
		{name: "quantized", config: `{"quantization_config": {"quant_method": "fp8"}}`, quantization: `{"quant_method": "fp8"}`},
		{name: "null", config: `{"quantization_config": null}`},
		{name: "python", config: `{"a": [0.0, Infinity, -Infinity, NaN], "\"NaN": "\\", "dtype": "NaN Infinity"}`, dtype: "NaN Infinity"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := open(t, writeTree(t, map[string]string{"model.safetensors": shardBytes(t, "x"), "config.json": test.config}))
			if string(c.Config) != test.config {
				t.Errorf("Config: got %s", c.Config)
			}
			if got := c.TorchDtype(); got != test.dtype {
				t.Errorf("TorchDtype: got %q, want %q", got, test.dtype)
			}
			got, ok := c.QuantizationConfig()
			if ok != (test.quantization != "") || ok && string(got) != test.quantization {
				t.Errorf("QuantizationConfig: got %s, %t", got, ok)
			}
		})
	}
	c := open(t, writeTree(t, map[string]string{"model.safetensors": shardBytes(t, "x")}))
	if _, ok := c.QuantizationConfig(); ok || c.Config != nil || c.TorchDtype() != "" {
		t.Error("without config.json: got a configuration")
	}
}

// TestInteger checks that members of text_config take precedence, and that other values count as absent.
func TestInteger(t *testing.T) {
	c := open(t, writeTree(t, map[string]string{"model.safetensors": shardBytes(t, "x"),
		"config.json": `{"layers": 3, "width": 5, "name": "x", "half": 0.5, "text_config": {"width": 7, "layers": "none"}}`}))
	for key, want := range map[string]int64{"layers": 3, "width": 7, "name": 0, "half": 0, "absent": 0} {
		if got := c.Integer(key); got != want {
			t.Errorf("%s: got %d, want %d", key, got, want)
		}
	}
}

// TestOpenFile checks a checkpoint of one open file, without a configuration, with one, and with one
// that is not JSON.
func TestOpenFile(t *testing.T) {
	path := filepath.Join(writeTree(t, map[string]string{"x.safetensors": shardBytes(t, "x")}), "x.safetensors")
	for config, want := range map[string]string{"": "", `{"layers": 3}`: "", "{": "invalid JSON"} {
		f, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		if config != "" {
			text = []byte(config)
		}
		c, err := OpenFile(f, text, nil)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q", config, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%q: %v", config, err)
		}
		if !c.Single || len(c.Tensors()) != 1 || c.Integer("layers") != int64(3*min(1, len(config))) {
			t.Errorf("%q: got %d tensors, layers %d", config, len(c.Tensors()), c.Integer("layers"))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFiles(t *testing.T) {
	c := open(t, writeTree(t, map[string]string{
		"config.json":                      "{}",
		"model.safetensors":                shardBytes(t, "x"),
		"README.md":                        "hello",
		"tokenizer.json":                   "{}",
		"tokenizer.model":                  "",
		"1_Pooling/config.json":            "{}",
		"1_Pooling/model.safetensors":      "never read",
		"1_Pooling/deeper/a.txt":           "",
		"consolidated.safetensors":         "never read",
		"pytorch_model.bin":                "",
		"pytorch_model.bin.index.json":     "",
		"original/consolidated.00.pth":     "",
		"onnx/model.onnx_data":             "",
		".git/objects/pack":                "",
		".gitattributes":                   "",
		"sub/.cache/x":                     "",
		"sub/model.safetensors.index.json": "",
		"gone.txt":                         "-> nowhere",
		"folder":                           "-> 1_Pooling",
	}))
	var others []string
	for _, o := range c.Others() {
		data, err := os.ReadFile(o.Path)
		if err != nil || int64(len(data)) != o.Size {
			t.Errorf("%s: %d bytes of %d, %v", o.Name, len(data), o.Size, err)
		}
		others = append(others, o.Name)
	}
	if want := []string{"1_Pooling/config.json", "1_Pooling/deeper/a.txt", "README.md", "tokenizer.json",
		"tokenizer.model"}; !slices.Equal(others, want) {
		t.Errorf("others: got %q, want %q", others, want)
	}
	if want := []string{"1_Pooling/model.safetensors", "consolidated.safetensors"}; !slices.Equal(c.Extra(), want) {
		t.Errorf("extra: got %q, want %q", c.Extra(), want)
	}
	want := []Skipped{
		{".git/", "hidden"},
		{".gitattributes", "hidden"},
		{"folder/", "a link to a folder, which could lead anywhere"},
		{"gone.txt", "cannot be read, or is a link to a file that is gone"},
		{"onnx/model.onnx_data", "ONNX weights"},
		{"original/consolidated.00.pth", "PyTorch weights"},
		{"pytorch_model.bin", "PyTorch weights"},
		{"pytorch_model.bin.index.json", "an index of other weights"},
		{"sub/.cache/", "hidden"},
		{"sub/model.safetensors.index.json", "an index of other weights"},
	}
	if !slices.Equal(c.Skipped(), want) {
		t.Errorf("skipped: got\n%q, want\n%q", c.Skipped(), want)
	}
}

// TestLinks opens the cache of huggingface_hub: a snapshot is a folder of links to blobs, and may be
// opened through a link.
func TestLinks(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"blobs/1":                             "{}",
		"blobs/2":                             shardBytes(t, "x"),
		"blobs/3":                             indexBytes(t, map[string]string{"x": "a.safetensors"}),
		"blobs/4":                             "tokens",
		"snapshots/abc/config.json":           "-> ../../blobs/1",
		"snapshots/abc/a.safetensors":         "-> ../../blobs/2",
		"snapshots/abc/" + indexFile:          "-> ../../blobs/3",
		"snapshots/abc/tokenizer/vocab.txt":   "-> ../../../blobs/4",
		"snapshots/abc/tokenizer/merges.data": "-> vocab.txt",
		"main":                                "-> snapshots/abc",
	})
	for _, path := range []string{"snapshots/abc", "main"} {
		c := open(t, filepath.Join(dir, path))
		if got := tensorNames(c); got != "a.safetensors:x" || string(c.Config) != "{}" {
			t.Errorf("%s: tensors %s, config %s", path, got, c.Config)
		}
		if len(c.Others()) != 2 || len(c.Skipped()) != 0 {
			t.Fatalf("%s: others %v, skipped %v", path, c.Others(), c.Skipped())
		}
		data, err := os.ReadFile(c.Others()[1].Path)
		if err != nil || string(data) != "tokens" || c.Others()[1].Size != int64(len(data)) {
			t.Errorf("%s: %v: read %q, %v", path, c.Others()[1], data, err)
		}
	}
}

func TestClose(t *testing.T) {
	c, err := Open(writeTree(t, map[string]string{"model.safetensors": shardBytes(t, "x")}))
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	first := errors.New("first")
	c.OnClose(func() error { order = append(order, 1); return errors.New("second") })
	c.OnClose(func() error { order = append(order, 2); return first })
	if err := c.Close(); err != first || !slices.Equal(order, []int{2, 1}) {
		t.Errorf("Close: got %v after %v", err, order)
	}
	if err := c.ReadTensorAt("x", make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after Close: got %v", err)
	}
}

// FuzzOpenIndexed opens a directory with two fixed shards and any index. An index that Open accepts
// must have exactly the tensors of its shards.
func FuzzOpenIndexed(f *testing.F) {
	f.Add([]byte(indexBytes(f, map[string]string{"x": "a.safetensors"})))
	f.Add([]byte(indexBytes(f, map[string]string{"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"})))
	f.Add([]byte(indexBytes(f, map[string]string{"x": "b.safetensors"})))
	f.Add([]byte(`{"weight_map":{"x":"a.safetensors","x":"b.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"x":"../a.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"x":"."}}`))
	f.Add([]byte(`{"weight_map":{"x":"config.json"}}`))
	f.Add([]byte(`{"weight_map":{"x":"` + indexFile + `"}}`))
	f.Add([]byte(`{"weight_map":{}}`))
	f.Add([]byte("{"))
	f.Add([]byte(nil))
	dir := writeTree(f, map[string]string{
		"a.safetensors": shardBytes(f, "x"), "b.safetensors": shardBytes(f, "y", "z"), "config.json": "{}",
	})
	f.Fuzz(func(t *testing.T, index []byte) {
		if err := os.WriteFile(filepath.Join(dir, indexFile), index, 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := Open(dir)
		if err != nil {
			if line := err.Error(); strings.ContainsAny(line, "\n\r") || !strings.HasPrefix(line, dir) {
				t.Errorf("got error %q, want one line that starts with the path", line)
			}
			return
		}
		defer c.Close()
		want := map[string]string{}
		for _, s := range c.Shards() {
			for _, tensor := range s.File.Tensors() {
				want[tensor.Name] = s.Name
			}
		}
		x, err := safetensors.ReadIndex(filepath.Join(dir, indexFile))
		if err != nil {
			t.Fatalf("Open accepts an index that ReadIndex rejects: %v", err)
		}
		if !maps.Equal(x.WeightMap, want) {
			t.Errorf("got index %v, want the tensors of the shards, %v", x.WeightMap, want)
		}
	})
}

// TestSingleBesideIndex: model.safetensors beside an index of other files is an error, because transformers loads the one and other
// clients the others.
func TestSingleBesideIndex(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"model.safetensors": "",
		"model.safetensors.index.json": `{"weight_map": {"a": "model-00001-of-00001.safetensors"}}`, "model-00001-of-00001.safetensors": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), "transformers loads the former, other clients the latter") || strings.Contains(err.Error(),
		"\n") {
		t.Errorf("error %v", err)
	}
}
