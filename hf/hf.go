// Package hf opens a Hugging Face checkpoint as a source: a directory, or a
// single safetensors file.
//
//	checkpoint/
//	├── config.json                        Config
//	├── model.safetensors.index.json       which shard has which tensor
//	├── model-00001-of-00002.safetensors   Shards, and their Tensors
//	├── model-00002-of-00002.safetensors
//	├── tokenizer.json, 1_Pooling/…        Others, which go along with the weights
//	├── consolidated.safetensors           Extra: weights that are no shard
//	└── pytorch_model.bin, .git/           Skipped, with the reason
//
// The shards are exactly the files that the index names. Without an index they
// are model.safetensors or, where there is none either, every *.safetensors
// file of the directory. Index and shards must agree on every tensor: what one
// of them has and the other does not is an error.
//
// Symbolic links to files are followed, since the cache of huggingface_hub is a
// directory of links. Nothing is interpreted beyond what is needed to find the
// tensors: not the architecture, and not how a checkpoint is quantized.
//
// Only headers are read when a checkpoint is opened, and tensors with
// positioned reads.
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

	"github.com/microscale-go/microscale/safetensors"
)

// A Checkpoint is an open checkpoint. Its methods may be called from several
// goroutines at once, except OnClose, OnDamaged and Close. What they return is shared and
// must not be changed.
type Checkpoint struct {
	Path   string // as it was opened, for messages
	Single bool   // a single file: no config, no index, no other files
	Config []byte // config.json as it is, nil where there is none
	Index  bool   // there is an index

	members map[string]json.RawMessage // of Config, NaN and infinities as zeros
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

// A Shard is one file of weights.
type Shard struct {
	Name string // in the directory
	File *safetensors.File
}

// A Tensor is a tensor of a checkpoint and the shard that has it.
type Tensor struct {
	safetensors.TensorInfo
	Shard Shard
}

// Open opens a directory or a single safetensors file and checks it. Errors
// are one line: file, tensor, what is wrong, what to do; what is wrong inside
// of a file is a [*safetensors.ContainerError].
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, pathError(path, err, "name a checkpoint directory or a .safetensors file")
	}
	c := &Checkpoint{Path: path, Single: !info.IsDir(), byName: make(map[string]int)}
	if c.Single {
		err = c.openSingle()
	} else {
		err = c.openDirectory()
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
	return c.addShard(filepath.Base(c.Path), c.Path)
}

func (c *Checkpoint) openDirectory() error {
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
	for _, name := range names {
		if err := c.addShard(name, filepath.Join(c.Path, name)); err != nil {
			return err
		}
	}
	if index != nil {
		if err := c.checkIndex(index); err != nil {
			return err
		}
	}
	c.sortFiles("", entries)
	return nil
}

// OnDamaged has Damaged call f, for a checkpoint whose shards are views of another
// file.
func (c *Checkpoint) OnDamaged(f func(context.Context, func(int64)) ([]string, error)) { c.damaged = f }

// OnClose has Close call f after it closed the files. The functions are called
// in reverse order.
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

// Tensors returns the tensors of all shards: shard by shard, and in a shard in
// the order of their data.
func (c *Checkpoint) Tensors() []Tensor { return c.tensors }

// Lookup returns the tensor of a name.
func (c *Checkpoint) Lookup(name string) (Tensor, bool) {
	i, ok := c.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return c.tensors[i], true
}

// ReadTensorAt fills p with the bytes of a tensor, starting off bytes into it.
// It fails, and reads nothing, when [off, off+len(p)) is not inside the tensor.
func (c *Checkpoint) ReadTensorAt(name string, p []byte, off int64) error {
	t, ok := c.Lookup(name)
	if !ok {
		return fmt.Errorf("%s: tensor %.120q is not in the checkpoint", c.Path, name)
	}
	return t.Shard.File.ReadTensorAt(p, t.TensorInfo, off)
}

// What to do about a fault.
const (
	fixConvert = "convert the weights to safetensors first"
	fixFetch   = "fetch the checkpoint again"
)

// fault is what is wrong with a file.
func fault(path, problem, fix string) error {
	return &safetensors.ContainerError{Path: path, Offset: -1, Problem: problem, Fix: fix}
}

// tensorFault is what is wrong with a tensor of a file.
func tensorFault(path, tensor, problem, fix string) error {
	return &safetensors.ContainerError{Path: path, Tensor: tensor, Offset: -1, Problem: problem, Fix: fix}
}

// pathError puts a failed system call on one line: path, cause, what to do.
func pathError(path string, err error, fix string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // its path would be the second one on the line
	}
	return fmt.Errorf("%s: %w: %s", path, err, fix)
}
