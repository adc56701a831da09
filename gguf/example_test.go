package gguf_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/gguf"
)

// Write a file with one tensor, and read it.
func Example() {
	dir, err := os.MkdirTemp("", "gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.gguf")

	layout, err := gguf.NewLayout(
		[]gguf.Spec{{Name: "blk.0.ffn_up.weight", Type: gguf.MXFP4, Shape: []int64{2, 32}}},
		[]gguf.Pair{{Key: "general.architecture", Value: "llama"}})
	if err != nil {
		log.Fatal(err)
	}
	data := make([]byte, layout.FileSize())
	copy(data, layout.HeaderBytes())
	for _, t := range layout.Tensors() {
		at, _ := layout.Offset(t.Name)
		data[at] = 127 // the scale of the first block
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		log.Fatal(err)
	}

	f, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println("architecture:", f.Value("general.architecture"))
	for _, t := range f.Tensors {
		block := make([]byte, 17)
		if err := f.ReadTensorAt(block, t, 0); err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name, t.Type, t.Shape, t.Bytes(), "bytes, first scale", block[0])
	}
	// Output:
	// architecture: llama
	// blk.0.ffn_up.weight MXFP4 [2 32] 34 bytes, first scale 127
}
