package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/safetensors"
)

// singleShard is the name of the weights of a checkpoint with one shard.
var singleShard = safetensors.ShardName(1, 1)

// named tells whether a directory entry has a name.
func named(name string) func(fs.DirEntry) bool {
	return func(e fs.DirEntry) bool { return e.Name() == name }
}

// findShards returns the names of the shards, sorted, and the index where the
// directory has one.
func (c *Checkpoint) findShards(entries []fs.DirEntry) ([]string, *safetensors.Index, error) {
	dir := c.Path
	// Asked of the entries and not with Stat, since an index that is a broken
	// link must not pass for none.
	if slices.ContainsFunc(entries, named(safetensors.IndexName)) {
		index, err := c.readIndex()
		if err != nil {
			return nil, nil, err
		}
		names := index.Shards()
		if _, missing := numberingGap(names); missing != "" {
			return nil, nil, fault(filepath.Join(dir, safetensors.IndexName),
				fmt.Sprintf("the index names no tensor of %q, which the names of the others say there is: it is truncated", missing), fixFetch)
		}
		return names, index, nil
	}
	var names []string
	for _, e := range entries {
		if IsWeights(e.Name()) && !isFolder(filepath.Join(dir, e.Name()), e) {
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

// IsWeights tells whether a file is one of weights by its name, and not hidden.
func IsWeights(name string) bool {
	return strings.HasSuffix(name, safetensors.Suffix) && !isHidden(name)
}

// readIndex reads the index of a directory and checks that its files are there.
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
	problem := fmt.Sprintf("the index names the file %q, which is not there (%d of %d files are missing)",
		missing[0], len(missing), len(index.Shards()))
	return nil, tensorFault(path, first, problem, "fetch the missing files")
}

// openError describes an error of the safetensors package. Its own errors are
// lines already; those of the system are not.
func openError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return pathError(path, err, "this is a link to a file that is gone; "+fixFetch)
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError(path, err, "check that it can be read")
	}
	return err
}

// numbered matches the file names of shards that say how many there are.
var numbered = regexp.MustCompile(`^(.*)-(\d{5,9})-of-(\d{5,9})\.safetensors$`)

// checkNumbering finds gaps in numbered shards that have no index, which would
// name those that are missing.
func checkNumbering(dir string, names []string) error {
	if name, missing := numberingGap(names); missing != "" {
		return fault(filepath.Join(dir, name), fmt.Sprintf("shard %q is not there, and there is no index", missing), fixFetch)
	}
	return nil
}

// numberingGap returns the first name that says that there are shards which are not
// among names, and the first of those; "" where there is none.
func numberingGap(names []string) (name, missing string) {
	type series struct {
		prefix, total string
		digits        int // of the number
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

// noShards describes a directory without weights that can be read.
func noShards(dir string, entries []fs.DirEntry) error {
	const problem = "the directory has no " + safetensors.Suffix + " file"
	for _, e := range entries {
		if kind := foreign(e.Name()); kind != "" && !e.IsDir() {
			return fault(dir, fmt.Sprintf("%s, but %q has %s", problem, e.Name(), kind), fixConvert)
		}
	}
	// The second pattern is the hub's cache of one repository.
	for _, pattern := range []string{"*/*" + safetensors.Suffix, "snapshots/*/*" + safetensors.Suffix} {
		if found, _ := fs.Glob(os.DirFS(dir), pattern); len(found) > 0 {
			return fault(dir, fmt.Sprintf("%s, but %q is one", problem, found[0]), "name the directory of that file")
		}
	}
	if len(entries) == 0 {
		return fault(dir, "the directory is empty", "name a checkpoint directory")
	}
	const most = 3
	var found []string
	for _, e := range entries[:min(most, len(entries))] {
		found = append(found, strconv.Quote(e.Name()))
	}
	if len(entries) > most {
		found = append(found, fmt.Sprintf("%d more", len(entries)-most))
	}
	return fault(dir, fmt.Sprintf("%s (found %s)", problem, strings.Join(found, ", ")), "name a checkpoint directory")
}

// addShard opens a shard and adds its tensors.
func (c *Checkpoint) addShard(name, path string) error {
	f, err := c.open(name, path)
	if err != nil {
		return openError(path, err)
	}
	return c.add(Shard{Name: name, File: f})
}

// add adds a shard that is open.
func (c *Checkpoint) add(s Shard) error {
	c.shards = append(c.shards, s)
	if len(c.byName) == 0 {
		c.byName = make(map[string]int, len(s.File.Tensors()))
	}
	c.tensors = slices.Grow(c.tensors, len(s.File.Tensors()))
	for _, t := range s.File.Tensors() {
		if first, twice := c.Lookup(t.Name); twice {
			return tensorFault(s.File.Name(), t.Name, fmt.Sprintf("the tensor is in %q too", first.Shard.Name),
				"remove the file that does not belong to the checkpoint, or name a single file")
		}
		c.byName[t.Name] = len(c.tensors)
		c.tensors = append(c.tensors, Tensor{t, s})
	}
	return nil
}

// grossly is the factor by which an index may overstate the bytes of its tensors. Some
// writers count tied weights twice, and some keep the number of a checkpoint before it
// was quantized, to a fourth of the bytes and scales.
const grossly = 8

// checkIndex checks that the index and the shards have the same tensors in the
// same places.
func (c *Checkpoint) checkIndex(index *safetensors.Index) error {
	path := filepath.Join(c.Path, safetensors.IndexName)
	var listed int64
	for _, t := range c.tensors {
		listed += t.Bytes()
	}
	if listed < index.TotalSize/grossly {
		return fault(path, fmt.Sprintf("the index says that all tensors together have %d bytes, and those that it names have %d: it is truncated", index.TotalSize, listed), "correct the index, or "+fixFetch)
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
			return tensorFault(path, name, fmt.Sprintf("the index says that it is in %q, but it is in %s", file, where), "correct the index, or "+fixFetch)
		case t.Shard.Name != file:
			return tensorFault(path, name, fmt.Sprintf("the index says that it is in %q, but it is in %q", file, t.Shard.Name),
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

// elsewhere returns the file of the directory that has a tensor and is no shard,
// or "".
func (c *Checkpoint) elsewhere(tensor string) string {
	entries, _ := os.ReadDir(c.Path) // what cannot be read has it not
	entries = c.withRemotes(entries)
	for _, e := range entries {
		if !IsWeights(e.Name()) || c.knows(e.Name()) {
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
