package hf

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/safetensors"
)

// An Other is a file that goes along with the weights, such as a tokenizer.
type Other struct {
	Name string // path in the directory, with slashes
	Path string // where to read it; may be a link to a file
	Size int64  // bytes
}

// A Skipped is a file or a folder that does not go along.
type Skipped struct {
	Name   string // path in the directory, with slashes, and one at the end of a folder's
	Reason string
}

// Others returns the files to carry along, of all folders, sorted by name:
// everything but config.json, the index, and what Shards, Extra and Skipped
// have.
func (c *Checkpoint) Others() []Other { return c.others }

// Extra returns the safetensors files that are no shards, of all folders,
// sorted by name: weights that the checkpoint does not use, such as another
// copy of them (consolidated.safetensors). They are neither read nor carried
// along.
func (c *Checkpoint) Extra() []string { return c.extra }

// Skipped returns what else is not carried along, sorted by name: weights in
// other containers, which would be a copy that is not quantized, their indexes,
// hidden files, and what is no file.
func (c *Checkpoint) Skipped() []Skipped { return c.skipped }

// foreignKinds says by suffix what files hold that the converter cannot read.
var foreignKinds = []struct{ suffix, kind string }{
	{".bin", "PyTorch weights"},
	{".ckpt", "PyTorch weights"},
	{".pt", "PyTorch weights"},
	{".pth", "PyTorch weights"},
	{".gguf", "GGUF weights"},
	{".h5", "TensorFlow weights"},
	{".tflite", "TensorFlow weights"},
	{".msgpack", "Flax weights"},
	{".npz", "NumPy weights"},
	{".onnx", "ONNX weights"},
	{".onnx.data", "ONNX weights"},
	{".onnx_data", "ONNX weights"},
	{".ot", "rust-bert weights"},
	{".pdparams", "Paddle weights"},
}

// indexSuffix is that of an index of any container.
const indexSuffix = ".index.json"

// foreign says which weights of another container a file has, nothing where its
// name is of no such file.
func foreign(name string) string {
	lower := strings.ToLower(name)
	for _, f := range foreignKinds {
		if strings.HasSuffix(lower, f.suffix) {
			return f.kind
		}
	}
	return ""
}

// Unread returns why a file of a checkpoint, by its path with slashes, is neither
// read nor carried along, or "".
func Unread(name string) string {
	switch {
	case slices.ContainsFunc(strings.Split(name, "/"), isHidden):
		return "hidden"
	case foreign(name) != "":
		return foreign(name)
	case strings.HasSuffix(name, indexSuffix) && name != safetensors.IndexName:
		return "an index of other weights"
	}
	return ""
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// isFolder tells whether an entry is a folder or a link to one.
func isFolder(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// sortFiles sorts the entries of a folder, whose path in the directory is
// folder, and of the folders in it into others, extra and skipped.
func (c *Checkpoint) sortFiles(folder string, entries []fs.DirEntry) {
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if folder == "" && c.knows(name) {
			continue
		}
		if _, remote := c.remotes[name]; remote && folder == "" {
			c.extra = append(c.extra, name)
			continue
		}
		at := filepath.Join(c.Path, filepath.FromSlash(name))
		info, err := os.Stat(at)
		skip := func(reason string) {
			if err == nil && info.IsDir() {
				name += "/"
			}
			c.skipped = append(c.skipped, Skipped{name, reason})
		}
		switch {
		case isHidden(e.Name()):
			skip("hidden")
		case err != nil:
			skip("cannot be read, or is a link to a file that is gone")
		case info.IsDir() && !e.IsDir():
			skip("a link to a folder, which could lead anywhere")
		case info.IsDir():
			inside, err := os.ReadDir(at)
			if err != nil {
				skip("cannot be read")
				continue
			}
			c.sortFiles(name, inside)
		case !info.Mode().IsRegular():
			skip("not a regular file")
		case IsWeights(e.Name()):
			c.extra = append(c.extra, name)
		case foreign(e.Name()) != "":
			skip(foreign(e.Name()))
		case strings.HasSuffix(e.Name(), indexSuffix):
			skip("an index of other weights")
		default:
			c.others = append(c.others, Other{name, at, info.Size()})
		}
	}
	if folder == "" {
		slices.SortFunc(c.others, func(a, b Other) int { return strings.Compare(a.Name, b.Name) })
		slices.Sort(c.extra)
		slices.SortFunc(c.skipped, func(a, b Skipped) int { return strings.Compare(a.Name, b.Name) })
	}
}

// knows tells whether a file of the directory is the config, the index or a
// shard.
func (c *Checkpoint) knows(name string) bool {
	return name == ConfigName || name == safetensors.IndexName ||
		slices.ContainsFunc(c.shards, func(s Shard) bool { return s.Name == name })
}
