package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/safetensors"
)

// Write a file with two tensors, then read one.
func Example() {
	dir, err := os.MkdirTemp("", "safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")

	layout, err := safetensors.NewLayout([]safetensors.Spec{
		{Name: "fc.weight", Dtype: safetensors.F8E4M3, Shape: []int64{2, 2}},
		{Name: "fc.weight_scale", Dtype: safetensors.F32, Shape: []int64{1}},
	}, map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	// A real program writes to a temporary name and renames it after Close.
	w, err := safetensors.Create(path, layout)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing once Close has succeeded
	if err := w.WriteTensorAt("fc.weight", []byte{0x38, 0x40, 0xb8, 0x7e}, 0); err != nil {
		log.Fatal(err)
	}
	if err := w.WriteTensorAt("fc.weight_scale", []byte{0, 0, 0x80, 0x3f}, 0); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	f, err := safetensors.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, t := range f.Tensors() {
		fmt.Println(t.Name, t.Dtype, t.Shape, t.Bytes(), "bytes at", t.Begin)
	}
	t, _ := f.Lookup("fc.weight")
	row := make([]byte, 2)
	if err := f.ReadTensorAt(row, t, 2); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("last row: % x\n", row)
	values, err := f.Floats("fc.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("as float32:", values)
	// Output:
	// fc.weight_scale F32 [1] 4 bytes at 0
	// fc.weight F8_E4M3 [2 2] 4 bytes at 4
	// last row: b8 7e
	// as float32: [1 2 -1 448]
}

// A damaged file: the error says where, and what to do.
func ExampleContainerError() {
	header := `{"a":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},
	            "b":{"dtype":"F32","shape":[16],"data_offsets":[96,160]}}`
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(append(file, header...), make([]byte, 160)...)
	_, err := safetensors.NewFile(bytes.NewReader(file), int64(len(file)), "a.safetensors")
	if damage, ok := errors.AsType[*safetensors.ContainerError](err); ok {
		fmt.Printf("%s, tensor %s, byte %d:\n%s:\n%s\n", damage.Path, damage.Tensor, damage.Offset, damage.Problem, damage.Fix)
	}
	// Output:
	// a.safetensors, tensor b, byte 78:
	// data starts at byte 96 of the data buffer, expected 64 (hole between tensors):
	// the file is damaged or was not written by a safetensors writer; fetch it again
}

// A layout alone is enough to make a small file in memory, as tests do.
func ExampleLayout() {
	layout, err := safetensors.NewLayout([]safetensors.Spec{
		{Name: "bias", Dtype: safetensors.BF16, Shape: []int64{2}},
		{Name: "steps", Dtype: safetensors.U8, Shape: nil},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	file := make([]byte, layout.FileSize())
	copy(file, layout.HeaderBytes())
	for _, t := range layout.Tensors() {
		offset, _ := layout.Offset(t.Name)
		for i := range t.Bytes() {
			file[offset+i] = byte(0x80 + i)
		}
	}

	f, err := safetensors.NewFile(bytes.NewReader(file), int64(len(file)), "in memory")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range f.Tensors() {
		data := make([]byte, t.Bytes())
		if err := f.ReadTensorAt(data, t, 0); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s: % x\n", t.Name, t.Dtype, data)
	}
	// Output:
	// bias BF16: 80 81 82 83
	// steps U8: 80
}

func ExampleIndex() {
	index := safetensors.Index{TotalSize: 1024, WeightMap: map[string]string{
		"model.norm.weight": safetensors.ShardName(2, 2),
		"lm_head.weight":    safetensors.ShardName(1, 2),
	}}
	text, err := index.Marshal()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
	// Output:
	// {
	//   "metadata": {
	//     "total_size": 1024
	//   },
	//   "weight_map": {
	//     "lm_head.weight": "model-00001-of-00002.safetensors",
	//     "model.norm.weight": "model-00002-of-00002.safetensors"
	//   }
	// }
}
