package hf_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// Open a checkpoint and read its tensors.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := writeCheckpoint(dir); err != nil {
		log.Fatal(err)
	}

	c, err := hf.Open(dir) // or the path of one safetensors file
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	architecture, _ := c.ModelType()
	fmt.Println(architecture, c.TorchDtype())
	for _, t := range c.Tensors() {
		values, err := c.Floats(t.Name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Shard.Name, t.Name, t.Dtype, t.Shape, values)
	}
	if _, err := c.Floats("lm_head.weight"); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("tied embeddings")
	}
	for _, o := range c.Others() {
		fmt.Println(o.Name, o.Size, "bytes")
	}
	// Output:
	// llama bfloat16
	// model.safetensors embed.weight BF16 [2 2] [1 -2 0.5 0]
	// tied embeddings
	// tokenizer.json 2 bytes
}

// writeCheckpoint writes a checkpoint with one tensor.
func writeCheckpoint(dir string) error {
	for name, text := range map[string]string{hf.ConfigName: `{"model_type": "llama", "torch_dtype": "bfloat16"}`, "tokenizer.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: "embed.weight", Dtype: safetensors.BF16, Shape: []int64{2, 2}}}, nil)
	if err != nil {
		return err
	}
	w, err := safetensors.Create(filepath.Join(dir, safetensors.ShardName(1, 1)), layout)
	if err != nil {
		return err
	}
	defer w.Abort() // does nothing after Close
	if err := w.WriteTensorAt("embed.weight", []byte{0x80, 0x3f, 0x00, 0xc0, 0x00, 0x3f, 0x00, 0x00}, 0); err != nil {
		return err
	}
	return w.Close()
}
