package interop

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// pythonSafetensors is the reference package with its dependencies for opening a file.
var pythonSafetensors = []string{"safetensors==0.8.0", "numpy==2.4.6"}

// A description is the report of container.py on a file.
type description struct {
	Metadata map[string]string    `json:"metadata"`
	Tensors  map[string]described `json:"tensors"`
}

type described struct {
	Dtype  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	SHA256 string  `json:"sha256"`
}

// A plannedTensor is one tensor of a file in a request to container.py.
type plannedTensor struct {
	Name  string  `json:"name"`
	Dtype string  `json:"dtype"` // NumPy's name; empty if the package does not write the dtype
	Shape []int64 `json:"shape"`
	Data  string  `json:"data"`

	spec safetensors.Spec
	data []byte
}

// numpyNames maps dtypes to those that the Python package writes. It also reads six-bit dtypes.
var numpyNames = map[string]string{
	"BOOL": "bool", "F4": "float4_e2m1fn_x2", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
	"F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
	"F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16",
	"I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64",
	"U64": "uint64",
}

// metadata has difficult strings. oneKey is metadata that Python writes reproducibly: it orders
// several keys at random.
var (
	oneKey   = map[string]string{"a \"quoted\" key": "ü\n\t\\ 中 😀 \u0001\u007f</>&\u2028"}
	metadata = map[string]string{"format": "pt", "": "an empty key", "a \"quoted\" key": oneKey["a \"quoted\" key"]}
)

// plan has tensors of every dtype in several shapes, with random bytes.
func plan() []plannedTensor {
	rnd := rand.New(rand.NewPCG(3, 4))
	var tensors []plannedTensor
	for _, d := range safetensors.Dtypes() {
		shapes := map[string][]int64{"matrix": {3, 8}, "vector": {4}, "cube": {2, 3, 4}, "none": {0, 4}, "scalar": {}}
		if d.Bits() < 8 {
			delete(shapes, "scalar") // not a whole byte
		}
		for _, name := range slices.Sorted(maps.Keys(shapes)) {
			shape := shapes[name]
			elements := int64(1)
			for _, n := range shape {
				elements *= n
			}
			data := make([]byte, elements*int64(d.Bits())/8)
			for i := range data {
				data[i] = byte(rnd.Uint32())
			}
			p := plannedTensor{
				Name: d.String() + "." + name + " é\"/", Dtype: numpyNames[d.String()], Shape: shape, Data: hex.EncodeToString(data),
				spec: safetensors.Spec{Dtype: d, Shape: shape}, data: data,
			}
			if d == safetensors.F4 { // Python counts pairs
				p.Shape = slices.Clone(shape)
				p.Shape[len(shape)-1] /= 2
			}
			p.spec.Name = p.Name
			tensors = append(tensors, p)
		}
	}
	return tensors
}

// write writes a file of the tensors with our package.
func write(t *testing.T, path string, tensors []plannedTensor, metadata map[string]string) {
	t.Helper()
	specs := make([]safetensors.Spec, len(tensors))
	for i, p := range tensors {
		specs[i] = p.spec
	}
	layout, err := safetensors.NewLayout(specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tensors {
		if err := w.WriteTensorAt(p.Name, p.data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// describe reads a file with the Python package.
func describe(t *testing.T, interpreter, path string) description {
	t.Helper()
	out := filepath.Join(t.TempDir(), "description.json")
	script(t, interpreter, "container.py", "describe", path, out)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// sameAsPython compares every byte that our package reads in a file with those of the Python
// package.
func sameAsPython(t *testing.T, interpreter, path string) {
	t.Helper()
	want := describe(t, interpreter, path)
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !maps.Equal(f.Metadata(), want.Metadata) {
		t.Errorf("metadata is %q, in Python %q", f.Metadata(), want.Metadata)
	}
	if len(f.Tensors()) != len(want.Tensors) {
		t.Errorf("%d tensors, in Python %d", len(f.Tensors()), len(want.Tensors))
	}
	for _, info := range f.Tensors() {
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.Sum256(data)
		got := described{info.Dtype.String(), info.Shape, hex.EncodeToString(sum[:])}
		w := want.Tensors[info.Name]
		if got.Dtype != w.Dtype || !slices.Equal(got.Shape, w.Shape) || got.SHA256 != w.SHA256 {
			t.Errorf("tensor %q is %v, in Python %v", info.Name, got, w)
		}
	}
}

// TestSafetensorsRead: Python and this module read our file of all dtypes alike.
func TestSafetensorsRead(t *testing.T) {
	interpreter := python(t, pythonSafetensors...)
	path := filepath.Join(t.TempDir(), "ours.safetensors")
	tensors := plan()
	write(t, path, tensors, metadata)
	sameAsPython(t, interpreter, path)

	got := describe(t, interpreter, path)
	for _, p := range tensors {
		sum := sha256.Sum256(p.data)
		if w := got.Tensors[p.Name]; w.SHA256 != hex.EncodeToString(sum[:]) || w.Dtype != p.spec.Dtype.String() ||
			!slices.Equal(w.Shape, p.spec.Shape) {
			t.Errorf("tensor %q was written as %v, and read as %v", p.Name, p.spec, w)
		}
	}
}

// TestSafetensorsWrite: Python and this module write identical files for the same tensors.
func TestSafetensorsWrite(t *testing.T) {
	interpreter := python(t, pythonSafetensors...)
	dir := t.TempDir()
	var tensors []plannedTensor
	for _, p := range plan() {
		if p.Dtype != "" {
			tensors = append(tensors, p)
		}
	}
	plan, err := json.Marshal(map[string]any{"metadata": oneKey, "tensors": tensors})
	if err != nil {
		t.Fatal(err)
	}
	planFile := filepath.Join(dir, "plan.json")
	if err := os.WriteFile(planFile, plan, 0o644); err != nil {
		t.Fatal(err)
	}
	ours, theirs := filepath.Join(dir, "ours.safetensors"), filepath.Join(dir, "theirs.safetensors")
	write(t, ours, tensors, oneKey)
	script(t, interpreter, "container.py", "write", planFile, theirs)
	sameAsPython(t, interpreter, theirs)

	if a, b := read(t, dir, "ours.safetensors"), read(t, dir, "theirs.safetensors"); !bytes.Equal(a, b) {
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		t.Errorf("files of %d and %d bytes differ at byte %d:\nours   %.200q\ntheirs %.200q", len(a), len(b), n, a[n:], b[n:])
	}
}
