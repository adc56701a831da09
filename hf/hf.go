// Package hf reads Hugging Face checkpoints: a directory, or a single safetensors file.
//
//	checkpoint/
//	├── config.json                        Config
//	├── model.safetensors.index.json       which shard has which tensor
//	├── model-00001-of-00002.safetensors   Shards, and their Tensors
//	├── model-00002-of-00002.safetensors
//	├── tokenizer.json, 1_Pooling/…        Others: auxiliary files
//	├── consolidated.safetensors           Extra: weights that are not a shard
//	└── pytorch_model.bin, .git/           Skipped, with the reason
//
// The shards are the files that the index names. Without an index, the only shard is
// model.safetensors if it exists; otherwise every *.safetensors file of the directory is a shard.
// The index and the shards must have the same tensors.
//
// Symbolic links to files are followed: the cache of huggingface_hub consists of links. The package
// does not interpret the architecture or the quantization of a checkpoint.
//
// Open reads only headers. Tensors are read on demand, with positioned reads.
package hf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
)

// A Checkpoint is an open checkpoint. Its methods are safe for concurrent use, except OnClose,
// OnDamaged and Close. The caller must not modify the slices that they return.
type Checkpoint struct {
	Path   string // as passed to Open; used in errors
	Single bool   // a single file: no index, no other files
	Config []byte // the bytes of config.json, or of a configuration that follows from the file; nil: none
	Index  bool   // the directory has an index

	// GGUF is the file that the checkpoint is a view of (package checkpoint/llamacpp); nil for others.
	GGUF *gguf.File

	members map[string]json.RawMessage // of Config, with NaN and infinities as zeros
	shards  []Shard
	tensors []Tensor
	byName  map[string]int // index into tensors
	remotes map[string]Remote
	others  []Other
	extra   []string
	skipped []Skipped
	onClose []func() error
	damaged func(context.Context, func(int64)) ([]string, error) // nil: Damaged reads the shards
}

// A Shard is a file of weights.
type Shard struct {
	Name string // file name in the directory; that of a tensor of a split GGUF model names the part, and File is a view of all
	File *safetensors.File
}

// A Tensor is a tensor of a checkpoint and the shard that holds it.
type Tensor struct {
	safetensors.TensorInfo
	Shard Shard
}

// Open opens a directory or a single safetensors file and checks it. It returns an error that wraps
// [fs.ErrNotExist] if the path, or a file that the index names, does not exist. For invalid files
// the error is a [*safetensors.ContainerError].
func Open(path string) (*Checkpoint, error) { return openAt(path, false) }

// OpenUnchecked is Open without a comparison of the index with the tensors of the files that it names, to repair it.
func OpenUnchecked(path string) (*Checkpoint, error) { return openAt(path, true) }

func openAt(path string, unchecked bool) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, pathError(path, err, "name a checkpoint directory or file")
	}
	c := &Checkpoint{Path: path, Single: !info.IsDir(), byName: make(map[string]int)}
	if c.Single {
		err = c.openSingle()
	} else {
		err = c.openDirectory(unchecked)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Checkpoint) openSingle() error {
	if filepath.Base(c.Path) == safetensors.IndexName {
		return fault(c.Path, "this is the index of a sharded checkpoint", "name its directory")
	}
	if kind := foreign(c.Path); kind != "" {
		return fault(c.Path, "this file has "+kind, fixConvert)
	}
	f, err := safetensors.Open(c.Path)
	if err != nil {
		return openError(c.Path, err)
	}
	return c.add(Shard{Name: filepath.Base(c.Path), File: f})
}

func (c *Checkpoint) openDirectory(unchecked bool) error {
	entries, err := os.ReadDir(c.Path)
	if err != nil {
		return pathError(c.Path, err, "check the permissions")
	}
	entries = c.withRemotes(entries)
	if slices.ContainsFunc(entries, named(ConfigName)) {
		if err := c.readConfig(); err != nil {
			return err
		}
	}
	names, index, err := c.findShards(entries)
	if err != nil {
		return err
	}
	c.Index = index != nil
	if err := c.addShards(names); err != nil {
		return err
	}
	if index != nil && !unchecked {
		if err := c.checkIndex(index); err != nil {
			return err
		}
	}
	c.sortFiles("", entries)
	return nil
}

// OnDamaged makes Damaged call f, for a checkpoint whose shards are views of another file.
func (c *Checkpoint) OnDamaged(f func(context.Context, func(int64)) ([]string, error)) { c.damaged = f }

// OnClose makes Close call f after it closed the files. The functions are called in reverse order.
func (c *Checkpoint) OnClose(f func() error) { c.onClose = append(c.onClose, f) }

// Close closes the files and returns the first error.
func (c *Checkpoint) Close() error {
	var first error
	for _, s := range c.shards {
		if err := s.File.Close(); first == nil {
			first = err
		}
	}
	for _, f := range slices.Backward(c.onClose) {
		if err := f(); first == nil {
			first = err
		}
	}
	return first
}

// Shards returns the files of weights, sorted by name.
func (c *Checkpoint) Shards() []Shard { return c.shards }

// Tensors returns the tensors of all shards, shard by shard, in the order of their data.
func (c *Checkpoint) Tensors() []Tensor { return c.tensors }

// Lookup returns the tensor with the given name.
func (c *Checkpoint) Lookup(name string) (Tensor, bool) {
	i, ok := c.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return c.tensors[i], true
}

// ReadTensorAt fills p with the bytes of a tensor from offset off on. It returns an error, and reads
// nothing, unless [off, off+len(p)) is inside the tensor. The error wraps [fs.ErrNotExist] if the
// checkpoint has no such tensor.
func (c *Checkpoint) ReadTensorAt(name string, p []byte, off int64) error {
	t, ok := c.Lookup(name)
	if !ok {
		return c.noTensor(name)
	}
	return t.Shard.File.ReadTensorAt(p, t.TensorInfo, off)
}

// Floats reads a tensor as float32 values; see [safetensors.File.Floats].
func (c *Checkpoint) Floats(name string) ([]float32, error) {
	t, ok := c.Lookup(name)
	if !ok {
		return nil, c.noTensor(name)
	}
	return t.Shard.File.Floats(name)
}

func (c *Checkpoint) noTensor(name string) error {
	return &safetensors.ContainerError{Path: c.Path, Tensor: name, Offset: -1, Problem: "the checkpoint has no such tensor",
		Err: fs.ErrNotExist}
}

// Remedies, by the cause of a fault.
const (
	fixConvert = "convert the weights to safetensors first"
	fixFetch   = "fetch the checkpoint again"
)

// fault returns an error about a file.
func fault(path, problem, fix string) error {
	return &safetensors.ContainerError{Path: path, Offset: -1, Problem: problem, Fix: fix}
}

// tensorFault returns an error about a tensor of a file.
func tensorFault(path, tensor, problem, fix string) error {
	return &safetensors.ContainerError{Path: path, Tensor: tensor, Offset: -1, Problem: problem, Fix: fix}
}

// pathError describes a failed system call in one line: path, cause, remedy.
func pathError(path string, err error, fix string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // without a second path on the line
	}
	return fmt.Errorf("%s: %w: %s", path, err, fix)
}
