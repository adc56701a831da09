package hf

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
)

// An Other is an auxiliary file, such as a tokenizer.
type Other struct {
	Name string // path in the directory, with slashes
	Path string // path to read; may be a link to a file
	Size int64  // bytes

	// Outside is the file that a link leads to, if that is neither in the directory nor a blob of the cache of
	// huggingface_hub that the directory belongs to: it may be any file of the user.
	Outside string
}

// A Skipped is a file or a folder that does not belong to the checkpoint.
type Skipped struct {
	Name   string // path in the directory, with slashes; ends in one for a folder
	Reason string
}

// Others returns the auxiliary files of all folders, sorted by name: all files but config.json, the
// index, and those of Shards, Extra and Skipped.
func (c *Checkpoint) Others() []Other { return c.others }

// Extra returns the safetensors files of all folders that are not shards, sorted by name. The
// checkpoint does not use them; consolidated.safetensors, for example, is another copy of the
// weights.
func (c *Checkpoint) Extra() []string { return c.extra }

// Skipped returns the other files and folders, sorted by name: weights in other containers, their
// indexes, hidden files, links to folders, and files that are not regular.
func (c *Checkpoint) Skipped() []Skipped { return c.skipped }

// foreignKinds describes the content of files of other containers, by their suffix.
var foreignKinds = []struct{ suffix, kind string }{
	{".bin", "PyTorch weights"},
	{".ckpt", "PyTorch weights"},
	{".pt", "PyTorch weights"},
	{".pth", "PyTorch weights"},
	{gguf.Suffix, "GGUF weights"},
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

// indexSuffix ends the name of an index of any container.
const indexSuffix = ".index.json"

// foreign returns the kind of weights of another container in a file, by its name, or "".
func foreign(name string) string {
	lower := strings.ToLower(name)
	for _, f := range foreignKinds {
		if strings.HasSuffix(lower, f.suffix) {
			return f.kind
		}
	}
	return ""
}

// Unread returns the reason why a file of a remote checkpoint, given by its path with slashes and its size in bytes,
// belongs to Skipped, or "".
func Unread(name string, size int64) string {
	const largest = 256 << 20 // of files besides the weights, which are downloaded
	weights := strings.HasSuffix(name, safetensors.Suffix)
	switch {
	case slices.ContainsFunc(strings.Split(name, "/"), isHidden):
		return "hidden"
	case foreign(name) != "":
		return foreign(name)
	case strings.HasSuffix(name, indexSuffix) && name != safetensors.IndexName:
		return "an index of other weights"
	case weights && strings.Contains(name, "/"):
		return "weights in a folder"
	case !weights && size > largest:
		return fmt.Sprintf("larger than %d MiB", largest>>20)
	}
	return ""
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// isFolder reports whether an entry is a folder or a link to one.
func isFolder(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// sortFiles adds the entries of a folder and of the folders in it to others, extra or skipped. folder
// is its path in the directory.
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
		case isWeights(e.Name()):
			c.extra = append(c.extra, name)
		case foreign(e.Name()) != "":
			skip(foreign(e.Name()))
		case strings.HasSuffix(e.Name(), indexSuffix):
			skip("an index of other weights")
		default:
			c.others = append(c.others, Other{name, at, info.Size(), c.outside(at)})
		}
	}
	if folder == "" {
		slices.SortFunc(c.others, func(a, b Other) int { return strings.Compare(a.Name, b.Name) })
		slices.Sort(c.extra)
		slices.SortFunc(c.skipped, func(a, b Skipped) int { return strings.Compare(a.Name, b.Name) })
	}
}

// Outside returns the file that the link of a name in the directory leads to, as in Other; empty if there is none.
func (c *Checkpoint) Outside(name string) string {
	return c.outside(filepath.Join(c.Path, filepath.FromSlash(name)))
}

// outside returns the file that a path leads to, if it is not one of the checkpoint.
func (c *Checkpoint) outside(path string) string {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return ""
	}
	target, err := filepath.EvalSymlinks(path)
	root, rootErr := filepath.EvalSymlinks(c.Path)
	if err != nil || rootErr != nil {
		return path // it is gone meanwhile
	}
	folders := []string{root}
	if snapshots := filepath.Dir(root); filepath.Base(snapshots) == "snapshots" {
		folders = append(folders, filepath.Join(filepath.Dir(snapshots), "blobs"))
	}
	for _, folder := range folders {
		if name, err := filepath.Rel(folder, target); err == nil && filepath.IsLocal(name) {
			return ""
		}
	}
	return target
}

// knows reports whether a file of the directory is the configuration, the index or a shard.
func (c *Checkpoint) knows(name string) bool {
	return name == ConfigName || name == safetensors.IndexName ||
		slices.ContainsFunc(c.shards, func(s Shard) bool { return s.Name == name })
}
