package safetensors

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestIndex(t *testing.T) {
	const text = `{
  "metadata": {
    "total_size": 141107412992
  },
  "weight_map": {
    "lm_head.weight": "model-00002-of-00002.safetensors",
    "model.<embed>&.weight": "model-00001-of-00002.safetensors",
    "model.norm.weight": "model-00002-of-00002.safetensors"
  }
}
`
	path := filepath.Join(t.TempDir(), IndexName)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	x, err := ReadIndex(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &Index{141107412992, map[string]string{
		"lm_head.weight":        ShardName(2, 2),
		"model.<embed>&.weight": ShardName(1, 2),
		"model.norm.weight":     ShardName(2, 2),
	}}
	if !reflect.DeepEqual(x, want) {
		t.Errorf("got %+v, want %+v", x, want)
	}
	if got, want := x.Shards(), []string{ShardName(1, 2), ShardName(2, 2)}; !reflect.DeepEqual(got, want) {
		t.Errorf("shards %v, want %v", got, want)
	}
	if got, err := x.Marshal(); err != nil || string(got) != text {
		t.Errorf("error %v, got\n%swant\n%s", err, got, text)
	}
	dir := filepath.Dir(path)
	if _, err := ReadIndex(dir); err == nil || err.Error() != dir+": not a regular file: name a file" {
		t.Errorf("reading a directory: %v", err)
	}
	if _, err := ReadIndex(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading nothing: %v", err)
	}
}

func TestIndexMarshalEmpty(t *testing.T) {
	got, err := new(Index).Marshal()
	const want = "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n"
	if err != nil || string(got) != want {
		t.Errorf("error %v, got\n%swant\n%s", err, got, want)
	}
}

func TestIndexTotalSize(t *testing.T) {
	for _, test := range []struct {
		metadata string
		want     int64
	}{
		{``, 0},
		{`"metadata":{},`, 0},
		{`"metadata":{"total_parameters":7,"x":[{"y":null},true,false,"z",-1.5e-3]},`, 0},
		{`"metadata":{"total_size":0},`, 0},
		{`"metadata":{"total_size":-0},`, 0},
		{`"metadata":{"total_size":9007199254740993},`, 1<<53 + 1},
		{`"metadata":{"total_size":1.5e3},`, 1500},
		{`"metadata":{"total_size":2.75},`, 2},
		{`"metadata":{"total_size":9223372036854775807},`, math.MaxInt64},
		{`"metadata":{"total_size":9223372036854775808},`, math.MaxInt64},
		{`"metadata":{"total_size":1e999},`, math.MaxInt64},
		{`"other":{"a":[[]]},`, 0},
	} {
		x, err := parseIndexFile([]byte(`{`+test.metadata+`"weight_map":{}}`), "")
		if err != nil || x.TotalSize != test.want {
			t.Errorf("%s: got %+v, error %v, want %d", test.metadata, x, err, test.want)
		}
	}
}

// badIndexes has an index for each fault, and its error.
var badIndexes = []struct{ name, json, want string }{
	{"empty", ``, "byte 0: invalid JSON: found the end, expected '{'"},
	{"list", `[]`, "byte 0: invalid JSON: found '[', expected '{'"},
	{"utf8", "{\"\xc0\xaf\"", "byte 2: invalid UTF-8"},
	{"trailing", `{"weight_map":{}}{`, "byte 17: invalid JSON: found '{' after the closing brace"},
	{"bad word", `{"x":nul}`, "byte 5: invalid JSON: found 'n', expected a value"},
	{"bad value", `{"x":,}`, "byte 5: invalid JSON: found ',', expected a number"},
	{"bad number", `{"x":1.}`, "byte 5: invalid JSON: found '1', expected a number"},
	{"no weight_map", `{"metadata":{"total_size":1}}`, "byte 0: weight_map is missing"},
	{"weight_map type", `{"weight_map":[]}`, "byte 14: weight_map is not an object"},
	{"file type", `{"weight_map":{"a":1}}`, `tensor "a": byte 19: weight_map: the file name is not a string`},
	{"two tensors of a name", `{"weight_map":{"a":"x","a":"x"}}`, `byte 23: key "a" appears twice`},
	{"two weight_maps", `{"weight_map":{},"weight_map":{}}`, `byte 17: key "weight_map" appears twice`},
	{"two total_sizes", `{"metadata":{"total_size":1,"total_size":1}}`, `byte 28: key "total_size" appears twice`},
	{"two in an unknown value", `{"x":[{"a":1,"a":1}]}`, `byte 13: key "a" appears twice`},
	{"metadata type", `{"metadata":3}`, "byte 12: metadata is not an object"},
	{"total_size type", `{"metadata":{"total_size":"3"}}`, `byte 26: total_size is not a number (found '"')`},
	{"total_size negative", `{"metadata":{"total_size":-0.5}}`, "byte 26: total_size is negative"},
	{"deep", `{"x":` + strings.Repeat("[", 1<<20), "byte 69: values are nested too deeply"},
	{"deep objects", `{"x":` + strings.Repeat(`{"x":`, 1<<20), "byte 325: values are nested too deeply"},
	{"no file", `{"weight_map":{"a":""}}`, `tensor "a": byte 15: weight_map: the file name is empty`},
	{"NUL in file", `{"weight_map":{"a":"x\u0000"}}`, `tensor "a": byte 15: weight_map: the file name contains a NUL character`},
	{"NUL in tensor", `{"weight_map":{"a\u0000":"x"}}`, `tensor "a\x00": byte 15: weight_map: the name contains a NUL character`},
	{"reserved", `{"weight_map":{"__metadata__":"x"}}`, `tensor "__metadata__": byte 15: weight_map: the name __metadata__ is reserved ` +
		`for the metadata`},
	{"parent", `{"weight_map":{"a":".."}}`, `tensor "a": byte 15: weight_map: the file name ".." could lead out of the directory of ` +
		`the index`},
	{"dot", `{"weight_map":{"a":"."}}`, `tensor "a": byte 15: weight_map: the file name "." could lead out of the directory of the index`},
	{"parent path", `{"weight_map":{"a":"../x"}}`, `tensor "a": byte 15: weight_map: the file name "../x" could lead out of the directory ` +
		`of the index`},
	{"absolute", `{"weight_map":{"a":"/x"}}`, `tensor "a": byte 15: weight_map: the file name "/x" could lead out of the directory of ` +
		`the index`},
	{"directory", `{"weight_map":{"a":"x/y"}}`, `tensor "a": byte 15: weight_map: the file name "x/y" could lead out of the directory of ` +
		`the index`},
	{"backslash", `{"weight_map":{"a":"x\\y"}}`, `tensor "a": byte 15: weight_map: the file name "x\\y" could lead out of the directory ` +
		`of the index`},
	{"drive", `{"weight_map":{"a":"c:x"}}`, `tensor "a": byte 15: weight_map: the file name "c:x" could lead out of the directory of ` +
		`the index`},
}

func TestParseIndexErrors(t *testing.T) {
	for _, test := range badIndexes {
		t.Run(test.name, func(t *testing.T) {
			x, err := parseIndexFile([]byte(test.json), "dir/"+IndexName)
			want := "dir/" + IndexName + ": " + test.want + ": " + fixIndex
			if _, ok := errors.AsType[*ContainerError](err); !ok || err.Error() != want {
				t.Errorf("got %+v, error\n  %v\nwant\n  %s", x, err, want)
			}
		})
	}
}

func TestIndexLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 200 MB of memory; run without -short")
	}
	data := []byte(`{"weight_map":{}}` + strings.Repeat(" ", maxHeaderSize))
	if _, err := parseIndexFile(data[:maxHeaderSize], "x"); err != nil {
		t.Error(err)
	}
	const want = "x: byte 100000000: the index has more than 100000000 bytes: " + fixIndex
	if _, err := parseIndexFile(data, "x"); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestIndexMarshalErrors(t *testing.T) {
	for _, test := range []struct {
		x    Index
		want string
	}{
		{Index{TotalSize: -1}, "total_size is negative: sum the bytes of the tensors"},
		{Index{WeightMap: map[string]string{"a": "../x"}}, `tensor "a": weight_map: the file name "../x" could lead out of the directory of ` +
			`the index: ` + fixTensor},
		{Index{WeightMap: map[string]string{"a": ""}}, `tensor "a": weight_map: the file name is empty: ` + fixTensor},
		{Index{WeightMap: map[string]string{"a": "\xff"}}, `tensor "a": weight_map: a name is not valid UTF-8: ` + fixTensor},
		{Index{WeightMap: map[string]string{"\xff": "a"}}, `tensor "\xff": weight_map: a name is not valid UTF-8: ` + fixTensor},
	} {
		if _, err := test.x.Marshal(); err == nil || err.Error() != test.want {
			t.Errorf("error %v, want %s", err, test.want)
		}
	}
}

func TestShardName(t *testing.T) {
	for _, test := range []struct {
		i, n int
		want string
	}{
		{1, 1, "model.safetensors"},
		{1, 2, "model-00001-of-00002.safetensors"},
		{30, 30, "model-00030-of-00030.safetensors"},
		{7, 123456, "model-00007-of-123456.safetensors"},
	} {
		if got := ShardName(test.i, test.n); got != test.want {
			t.Errorf("ShardName(%d, %d) = %q, want %q", test.i, test.n, got, test.want)
		}
	}
	for _, i := range []int{0, 3} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("ShardName(%d, 2) does not panic", i)
				}
			}()
			ShardName(i, 2)
		}()
	}
}

// FuzzParseIndex checks that an index which parses is written so that it parses
// into the same, and that its files stay in their directory.
func FuzzParseIndex(f *testing.F) {
	for _, test := range badIndexes {
		if len(test.json) < 1000 {
			f.Add([]byte(test.json))
		}
	}
	f.Add([]byte(`{"metadata":{"total_size":1.5e3},"weight_map":{"a":"model-00001-of-00002.safetensors","b\u00e9\ud83d\ude00":"x"}}`))
	f.Add([]byte(`{"metadata":{"total_size":3,"x":[1,{"y":[]}]},"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := parseIndexFile(data, "x")
		if err != nil {
			if _, ok := errors.AsType[*ContainerError](err); !ok || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %q", err)
			}
			return
		}
		for _, file := range x.Shards() {
			if filepath.Base(file) != file || !filepath.IsLocal(file) {
				t.Fatalf("file name %q", file)
			}
		}
		out, err := x.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseIndexFile(out, "x"); err != nil || !reflect.DeepEqual(again, x) {
			t.Fatalf("%+v became %+v, %v", x, again, err)
		}
	})
}

// parseIndexFile is parseIndex with the name of the file in errors.
func parseIndexFile(data []byte, name string) (*Index, error) {
	x, err := parseIndex(data)
	if err != nil {
		err.Path = name
		return nil, err
	}
	return x, nil
}
