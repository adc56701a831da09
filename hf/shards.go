package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/safetensors"
)

// singleShard is the name of the only shard of a checkpoint.
var singleShard = safetensors.ShardName(1, 1)

// named returns a function that reports whether a directory entry has the given name.
func named(name string) func(fs.DirEntry) bool {
	return func(e fs.DirEntry) bool { return e.Name() == name }
}

// findShards returns the names of the shards, sorted, and the index or nil.
func (c *Checkpoint) findShards(entries []fs.DirEntry) ([]string, *safetensors.Index, error) {
	dir := c.Path
	// Look at the entries, not with Stat: an index that is a broken link is an error.
	if slices.ContainsFunc(entries, named(safetensors.IndexName)) {
		index, err := c.readIndex()
		if err != nil {
			return nil, nil, err
		}
		names := index.Shards()
		if _, missing := numberingGap(names); missing != "" {
			return nil, nil, fault(filepath.Join(dir, safetensors.IndexName),
				fmt.Sprintf("the index names no tensor of %q, which must exist by the names of the others: the index is truncated", missing), fixFetch)
		}
		if slices.ContainsFunc(entries, named(singleShard)) && !slices.Contains(names, singleShard) {
			return nil, nil, fault(filepath.Join(dir, singleShard),
				fmt.Sprintf("it is beside %s, which names other files: transformers loads the former, other clients the latter", safetensors.IndexName),
				"remove the one that is not the model, or name the file")
		}
		return names, index, nil
	}
	var names []string
	for _, e := range entries {
		if isWeights(e.Name()) && !isFolder(filepath.Join(dir, e.Name()), e) {
			names = append(names, e.Name())
		}
	}
	switch {
	case len(names) == 0:
		return nil, nil, noShards(dir, entries)
	case slices.Contains(names, singleShard):
		return []string{singleShard}, nil, nil
	}
	return names, nil, checkNumbering(dir, names)
}

// isWeights reports whether a file holds weights, by its name. Hidden files do not.
func isWeights(name string) bool {
	return strings.HasSuffix(name, safetensors.Suffix) && !isHidden(name)
}

// readIndex reads the index of the directory and checks that its files exist.
func (c *Checkpoint) readIndex() (*safetensors.Index, error) {
	path := filepath.Join(c.Path, safetensors.IndexName)
	index, err := safetensors.ReadIndex(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fault(path, "the index names no tensors", fixFetch)
	}
	var missing []string
	for _, name := range index.Shards() {
		_, remote := c.remotes[name]
		if _, err := os.Stat(filepath.Join(c.Path, name)); !remote && errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return index, nil
	}
	first := ""
	for tensor, name := range index.WeightMap {
		if name == missing[0] && (first == "" || tensor < first) {
			first = tensor
		}
	}
	problem := fmt.Sprintf("the index names the file %q, which does not exist (%d of %d files are missing)",
		missing[0], len(missing), len(index.Shards()))
	return nil, &safetensors.ContainerError{Path: path, Tensor: first, Offset: -1, Problem: problem, Fix: "fetch the missing files",
		Err: fs.ErrNotExist}
}

// openError describes an error of the safetensors package. It adds path and remedy to system errors.
func openError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return pathError(path, err, "this is a broken link; "+fixFetch)
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError(path, err, "check its permissions")
	}
	return err
}

// numbered matches file names of shards that include the number of shards.
var numbered = regexp.MustCompile(`^(.*)-(\d{5,9})-of-(\d{5,9})\.safetensors$`)

// checkNumbering returns an error for a gap in numbered shards without an index.
func checkNumbering(dir string, names []string) error {
	if name, missing := numberingGap(names); missing != "" {
		return &safetensors.ContainerError{Path: filepath.Join(dir, name), Offset: -1,
			Problem: fmt.Sprintf("shard %q does not exist, and there is no index", missing), Fix: fixFetch, Err: fs.ErrNotExist}
	}
	return nil
}

// numberingGap returns the first missing shard, and the name that implies it, or "" if there is no
// gap.
func numberingGap(names []string) (name, missing string) {
	type series struct {
		prefix, total string
		digits        int // digits of the number
	}
	present, complete := map[string]bool{}, map[series]bool{}
	for _, name := range names {
		present[name] = true
	}
	for _, name := range names {
		m := numbered.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		of := series{m[1], m[3], len(m[2])}
		if complete[of] {
			continue
		}
		total, _ := strconv.Atoi(m[3]) // at most nine digits
		for i := 1; i <= total; i++ {
			sibling := fmt.Sprintf("%s-%0*d-of-%s%s", m[1], len(m[2]), i, m[3], safetensors.Suffix)
			if !present[sibling] {
				return name, sibling
			}
		}
		complete[of] = true
	}
	return "", ""
}

// noShards returns the error for a directory without safetensors files.
func noShards(dir string, entries []fs.DirEntry) error {
	const problem = "the directory has no " + safetensors.Suffix + " file"
	for _, e := range entries {
		if kind := foreign(e.Name()); kind != "" && !e.IsDir() {
			fix := fixConvert
			if gguf.Named(e.Name()) { // package convert reads it
				fix = "name that file"
			}
			return fault(dir, fmt.Sprintf("%s, but %q has %s", problem, e.Name(), kind), fix)
		}
	}
	if found, _ := fs.Glob(os.DirFS(dir), "checkpoint/step-*/state.json"); len(found) > 0 { // of package train
		return fault(dir, fmt.Sprintf("%s, but %q is of an unfinished training run", problem, path.Dir(found[0])), "complete the run first")
	}
	// The second pattern matches the cache of a repository of the hub.
	for _, pattern := range []string{"*/*" + safetensors.Suffix, "snapshots/*/*" + safetensors.Suffix} {
		if found, _ := fs.Glob(os.DirFS(dir), pattern); len(found) > 0 {
			return fault(dir, fmt.Sprintf("%s, but %q is one", problem, found[0]), "name the directory of that file")
		}
	}
	if len(entries) == 0 {
		return fault(dir, "the directory is empty", "name a checkpoint directory")
	}
	const maxNamed = 3
	var found []string
	for _, e := range entries[:min(maxNamed, len(entries))] {
		found = append(found, strconv.Quote(e.Name()))
	}
	if len(entries) > maxNamed {
		found = append(found, fmt.Sprintf("%d more", len(entries)-maxNamed))
	}
	return fault(dir, fmt.Sprintf("%s (found %s)", problem, strings.Join(found, ", ")), "name a checkpoint directory")
}

// maxOpening is the number of shards whose headers are read at once: those of remote files wait for a server.
const maxOpening = 8

// addShards opens shards and adds their tensors. On error it closes those that it did not add.
func (c *Checkpoint) addShards(names []string) error {
	files, failures := make([]*safetensors.File, len(names)), make([]error, len(names))
	parallel.Each(len(names), maxOpening, func(i int) {
		path := filepath.Join(c.Path, names[i])
		if files[i], failures[i] = c.open(names[i], path); failures[i] != nil {
			failures[i] = openError(path, failures[i])
		}
	})
	var first error
	for i, f := range files {
		if first == nil {
			first = failures[i]
		}
		switch {
		case first == nil:
			first = c.add(Shard{Name: names[i], File: f})
		case f != nil:
			_ = f.Close() // nothing was written
		}
	}
	return first
}

// add adds an open shard.
func (c *Checkpoint) add(s Shard) error {
	c.shards = append(c.shards, s)
	if len(c.byName) == 0 {
		c.byName = make(map[string]int, len(s.File.Tensors()))
	}
	c.tensors = slices.Grow(c.tensors, len(s.File.Tensors()))
	for _, t := range s.File.Tensors() {
		if first, twice := c.Lookup(t.Name); twice {
			return tensorFault(s.File.Name(), t.Name, fmt.Sprintf("the tensor is also in %q", first.Shard.Name),
				"remove the file that does not belong to the checkpoint, or name a single file")
		}
		c.byName[t.Name] = len(c.tensors)
		c.tensors = append(c.tensors, Tensor{t, s})
	}
	return nil
}

// maxOverstatement is the factor by which an index may overstate the bytes of its tensors. Some
// writers count tied weights twice. Others keep the number from before the checkpoint was quantized.
const maxOverstatement = 8

// checkIndex checks that the index and the shards have the same tensors in the same files.
func (c *Checkpoint) checkIndex(index *safetensors.Index) error {
	path := filepath.Join(c.Path, safetensors.IndexName)
	var listed int64
	for _, t := range c.tensors {
		listed += t.Bytes()
	}
	if listed < index.TotalSize/maxOverstatement {
		return fault(path, fmt.Sprintf("got %d bytes for all tensors, and %d for those that the index names: the index is truncated",
			index.TotalSize, listed), "correct the index, or "+fixFetch)
	}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		file := index.WeightMap[name]
		t, ok := c.Lookup(name)
		switch {
		case !ok:
			where := "no file"
			if other := c.elsewhere(name); other != "" {
				where = fmt.Sprintf("%q, which the index does not name", other)
			}
			return tensorFault(path, name, fmt.Sprintf("the index has it in %q, but it is in %s", file, where), "correct the index, or "+fixFetch)
		case t.Shard.Name != file:
			return tensorFault(path, name, fmt.Sprintf("the index has it in %q, but it is in %q", file, t.Shard.Name),
				"correct the index, or "+fixFetch)
		}
	}
	for _, t := range c.tensors {
		if _, ok := index.WeightMap[t.Name]; !ok {
			return tensorFault(filepath.Join(c.Path, t.Shard.Name), t.Name,
				"the tensor is not in "+safetensors.IndexName, "correct the index, or "+fixFetch)
		}
	}
	return nil
}

// elsewhere returns the name of a file that has a tensor but is not a shard, or "".
func (c *Checkpoint) elsewhere(tensor string) string {
	entries, _ := os.ReadDir(c.Path) // files that cannot be read do not count
	entries = c.withRemotes(entries)
	for _, e := range entries {
		if !isWeights(e.Name()) || c.knows(e.Name()) {
			continue
		}
		f, err := c.open(e.Name(), filepath.Join(c.Path, e.Name()))
		if err != nil {
			continue
		}
		found := slices.ContainsFunc(f.Tensors(), func(t safetensors.TensorInfo) bool { return t.Name == tensor })
		_ = f.Close() // nothing was written
		if found {
			return e.Name()
		}
	}
	return ""
}
