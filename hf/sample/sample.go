// Package sample generates a sample checkpoint: a directory in the form of a small Llama of
// about ten million BF16 parameters. With it, all that reads a checkpoint can be tried without
// a download.
//
//	files/                             embedded in the program, copied unchanged
//	model-00001-of-00002.safetensors   embedding, layers 0 to 2, layer 3 up to its q_proj
//	model-00002-of-00002.safetensors   the rest of layer 3, layers 4 and 5, norm, lm_head
//
// Its bytes are the same on every machine: see [Write]. The shards split a layer, as those of
// large models do, so that tensors that belong together are in different files.
package sample

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/safetensors"
)

// Name stands for the sample in place of the path of a checkpoint.
const Name = "sample:"

// Open opens the sample if source is [Name], otherwise the checkpoint that [hf.Open] opens. It
// writes the sample to a temporary directory, which the checkpoint's Close removes. If ctx
// ends before the sample is complete, Open removes the directory and returns the error of ctx.
func Open(ctx context.Context, source string) (*hf.Checkpoint, error) {
	if source == Name {
		return openSample(ctx)
	}
	if strings.HasPrefix(source, Name) {
		return nil, fmt.Errorf("%s: there is only one sample: use %s alone", source, Name)
	}
	return hf.Open(source)
}

func openSample(ctx context.Context) (*hf.Checkpoint, error) {
	dir, remove, err := durable.Temp("microscale-sample-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w: the sample needs a directory for temporary files", Name, err)
	}
	if err := Write(ctx, dir); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, errors.Join(err, remove()))
	}
	c, err := openDated(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, errors.Join(err, remove()))
	}
	c.Path = Name
	c.OnClose(remove)
	return c, nil
}

// openDated opens a directory after setting the time of its files to a constant: a resumed
// conversion identifies its source by it.
func openDated(dir string) (*hf.Checkpoint, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	date := time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(dir, e.Name()), date, date); err != nil {
			return nil, err
		}
	}
	return hf.Open(dir)
}

//go:embed files
var files embed.FS

// filesFolder is where files has them.
const filesFolder = "files"

// shards is the number of files of weights.
const shards = 2

// Write writes the sample into a directory, which it creates if necessary. It returns an error
// rather than overwrite a file. It writes the index first, so that an incomplete directory
// does not open. If ctx ends, Write stops before the next tensor and leaves the files.
func Write(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	m, err := readModel()
	if err != nil {
		return err
	}
	tensors := m.tensors()
	index, err := m.index(tensors)
	if err != nil {
		return err
	}
	if err := create(filepath.Join(dir, safetensors.IndexName), index); err != nil {
		return err
	}
	if err := writeFiles(dir); err != nil {
		return err
	}
	for shard := 1; shard <= shards; shard++ {
		if err := writeShard(ctx, dir, shard, tensors); err != nil {
			return err
		}
	}
	return nil
}

// create writes a file that must not exist.
func create(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// writeFiles copies the embedded files.
func writeFiles(dir string) error {
	entries, err := fs.ReadDir(files, filesFolder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := files.ReadFile(path.Join(filesFolder, e.Name()))
		if err != nil {
			return err
		}
		if err := create(filepath.Join(dir, e.Name()), data); err != nil {
			return err
		}
	}
	return nil
}

// index returns the index of the tensors.
func (m *model) index(tensors []weight) ([]byte, error) {
	index := safetensors.Index{WeightMap: make(map[string]string)}
	for _, t := range tensors {
		index.WeightMap[t.name] = safetensors.ShardName(t.shard, shards)
		index.TotalSize += int64(t.rows) * int64(t.cols) * int64(safetensors.BF16.Bits()/8)
	}
	return index.Marshal()
}

// writeShard writes one file of weights, counted from 1.
func writeShard(ctx context.Context, dir string, shard int, tensors []weight) error {
	var specs []safetensors.Spec
	var mine []weight
	for _, t := range tensors {
		if t.shard == shard {
			mine = append(mine, t)
			specs = append(specs, safetensors.Spec{Name: t.name, Dtype: safetensors.BF16, Shape: t.shape()})
		}
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	w, err := safetensors.Create(filepath.Join(dir, safetensors.ShardName(shard, shards)), layout)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, t := range mine {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := t.bytes()
		if err != nil {
			return err
		}
		if err := w.WriteTensorAt(t.name, data, 0); err != nil {
			return err
		}
	}
	return w.Close()
}

// A model holds the keys of config.json that determine the shapes. These numbers are only in
// config.json.
type model struct {
	Hidden       int `json:"hidden_size"`
	Intermediate int `json:"intermediate_size"`
	Layers       int `json:"num_hidden_layers"`
	Heads        int `json:"num_attention_heads"`
	KVHeads      int `json:"num_key_value_heads"`
	HeadDim      int `json:"head_dim"`
	Vocab        int `json:"vocab_size"`
}

func readModel() (*model, error) {
	data, err := files.ReadFile(path.Join(filesFolder, hf.ConfigName))
	if err != nil {
		return nil, err
	}
	m := &model{}
	return m, json.Unmarshal(data, m)
}
