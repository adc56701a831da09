package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
)

// Admit returns the error that [Plan.Run] would return for the destination. It creates nothing.
func (p *Plan) Admit(dst string, force bool) error {
	if err := errors.Join(p.admitInexact(), p.admitName(dst), p.admitLinks()); err != nil {
		return err
	}
	o := p.outputAt(dst)
	o.force = force
	if err := o.admit(p); err != nil {
		return err
	}
	return o.own()
}

// admitName returns an error if the weights of a GGUF file alone would become a file that does not say
// so by its name: a user expects a directory there.
func (p *Plan) admitName(dst string) error {
	source := p.source
	if !p.single || source.Architecture == "" || p.convention.OneFile() || strings.HasSuffix(dst, safetensors.Suffix) {
		return nil
	}
	return fmt.Errorf("%s: config.json cannot be written for the architecture %q of llama.cpp: choose a destination that ends in %s for "+
		"the weights alone",
		source.Source.Path, source.Architecture, safetensors.Suffix)
}

// names returns the slash-separated paths of the result's files in the partial directory.
func (p *Plan) names() map[string]bool {
	if p.single {
		return map[string]bool{singleName: true}
	}
	names := map[string]bool{hf.ConfigName: true, safetensors.IndexName: true}
	for _, f := range p.files {
		names[f.name] = true
	}
	for _, other := range p.others() {
		names[other.Name] = true
	}
	for _, file := range p.small {
		names[file.Name] = true
	}
	return names
}

// admitLinks returns an error if the configuration or an auxiliary file of the source is a link to a file elsewhere:
// whoever made the source may not know what a copy of it publishes. Weights may be links, as of models that share
// them: no file but one of weights has a header that fits.
func (p *Plan) admitLinks() error {
	source := p.source.Source
	files := p.others()
	if !source.Single {
		files = append(slices.Clone(files), hf.Other{Path: filepath.Join(source.Path, hf.ConfigName), Outside: source.Outside(hf.ConfigName)})
	}
	for _, o := range files {
		if o.Outside != "" {
			return fmt.Errorf("%s: a link to %s, outside of the source, which the result would contain: replace it by a copy of the file, or "+
				"remove it", o.Path, o.Outside)
		}
	}
	return nil
}

// admit returns an error if the destination must not be written.
func (o *output) admit(p *Plan) error {
	if err := o.apart(p.source.Source); err != nil {
		return err
	}
	if err := o.spares(p); err != nil {
		return err
	}
	return o.admitName()
}

// admitName returns an error if the destination exists and must not be replaced.
func (o *output) admitName() error {
	info, err := os.Lstat(o.final)
	switch {
	case errors.Is(err, os.ErrNotExist):
		o.replace = false
		return nil
	case err != nil:
		return durable.CannotWrite(filepath.Dir(o.final), err)
	case !o.force:
		return because(fs.ErrExist, fmt.Errorf("%s: the destination exists: choose another name", o.final))
	case info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s: a symbolic link, which is never replaced: name its target, or remove it yourself", o.final)
	case o.single && !isWeights(o.final, info), !o.single && !isCheckpoint(o.final):
		return fmt.Errorf("%s: not a checkpoint, and only checkpoints are replaced: choose another name, or remove it yourself", o.final)
	}
	o.replace = true
	return o.replaceable()
}

// replaceable returns an error if replacing the destination would delete files that are not
// part of a checkpoint: in it, or in the directory that an earlier run moved away.
func (o *output) replaceable() error {
	if o.single {
		return nil
	}
	for _, dir := range []string{o.final, o.replaced} {
		name, err := o.stray(dir)
		if err != nil {
			return fmt.Errorf("%s: list the files that would be deleted: %w", dir, err)
		}
		if name != "" {
			return fmt.Errorf("%s is not part of a checkpoint, and would be deleted: move it away or choose another destination",
				filepath.Join(dir, filepath.FromSlash(name)))
		}
	}
	return nil
}

// own returns an error if the partial directory holds files that no run left there: it has no
// marker and not only files of the result.
func (o *output) own() error {
	if err := o.noLinks(); err != nil {
		return err
	}
	if _, err := os.Lstat(o.path(markerName)); err == nil {
		return nil
	}
	name, err := o.stray(o.partial)
	if err != nil {
		return fmt.Errorf("%s: list its files: %w", o.partial, err)
	}
	if name != "" {
		return fmt.Errorf("%s: the result is written here, but it contains the foreign file %q: move it away or choose another destination",
			o.partial, name)
	}
	return nil
}

// noLinks returns an error if the partial directory is or contains a link or special file,
// through which a run would write elsewhere.
func (o *output) noLinks() error {
	return filepath.WalkDir(o.partial, func(path string, e fs.DirEntry, err error) error {
		switch {
		case path == o.partial && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("%s: list its files: %w", o.partial, err)
		case path == o.partial && !e.IsDir(), !e.IsDir() && !e.Type().IsRegular():
			return fmt.Errorf("%s: a link or special file, which no run creates here: move it away or choose another destination", path)
		}
		return nil
	})
}

// foreign returns the first entry of a directory that is neither a regular file with one of the names, nor a directory
// on the way to one, nor the journal. A run that is finished must not take it into the result, or delete it.
func foreign(dir string, names map[string]bool) error {
	folders := map[string]bool{".": true}
	for name := range names {
		for ; name != "."; name = path.Dir(name) {
			folders[path.Dir(name)] = true
		}
	}
	return filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: list its files: %w", dir, err)
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case e.IsDir() && folders[name], e.Type().IsRegular() && (names[name] || name == markerName):
			return nil
		case name == ".":
			return notDirectory(at)
		case names[name], name == markerName:
			return fmt.Errorf("%s: a link or special file, which no run writes: remove it, and run again", at)
		}
		return fmt.Errorf("%s: not a file of the result: move it away", at)
	})
}

// notDirectory returns the error of a link or a file in place of a directory.
func notDirectory(path string) error {
	return fmt.Errorf("%s: a link or a file, want a directory: move the directory itself here", path)
}

// modelFiles are files of models on the hub, besides weights and config.json, that the result may lack.
var modelFiles = []string{"README.md", ".gitattributes", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja",
	"chat_template.json", "preprocessor_config.json", "processor_config.json"}

// stray returns the first file in a directory tree that is neither a file of the result nor, by
// its name, of a checkpoint; "" if there is none.
func (o *output) stray(dir string) (found string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if path == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		weights := !strings.Contains(name, "/") && (strings.HasSuffix(name, safetensors.Suffix) || strings.HasSuffix(name,
			safetensors.Suffix+".index.json") || ggufPart.MatchString(name))
		if o.names[name] || weights || slices.Contains(modelFiles, name) || checkpoint.IsSidecar(name) || name == markerName {
			return nil
		}
		found = name
		return fs.SkipAll
	})
	return found, err
}

// apart returns an error if source and destination are the same or nested.
func (o *output) apart(source *hf.Checkpoint) error {
	from, to := realPath(source.Path), realPath(o.final)
	if from == to || from == realPath(o.partial) || from == realPath(o.replaced) {
		return fmt.Errorf("%s: source and destination are the same: choose another destination", o.final)
	}
	within := func(inner, outer string) bool { return strings.HasPrefix(inner, outer+string(filepath.Separator)) }
	if !source.Single && within(to, from) || within(from, to) {
		return fmt.Errorf("%s: source and destination are nested: choose a destination outside the source", o.final)
	}
	return nil
}

// spares returns an error if a file that the plan reads, or one of its links, lies where the run deletes files: in the destination or
// beside it, under the names of incomplete and replaced results.
func (o *output) spares(p *Plan) error {
	files := p.reads()
	for _, outer := range []string{realPath(o.final), realPath(o.partial), realPath(o.replaced)} {
		for _, file := range files {
			for _, at := range linkedPaths(file) {
				if at == outer || strings.HasPrefix(at, outer+string(filepath.Separator)) {
					return fmt.Errorf("%s: source and destination share files: %s is read from %s: choose another destination", o.final, file, at)
				}
			}
		}
	}
	return nil
}

// reads returns the paths of the files that the plan reads, those of Reads among them.
func (p *Plan) reads() (paths []string) {
	source := p.source.Source
	for _, s := range slices.Concat(source.Shards(), p.copied()) {
		paths = append(paths, s.File.Name())
	}
	for _, o := range source.Others() {
		paths = append(paths, o.Path)
	}
	switch {
	case !source.Single:
		paths = append(paths, filepath.Join(source.Path, hf.ConfigName), filepath.Join(source.Path, safetensors.IndexName))
	case source.GGUF != nil: // it may be split
		paths = append(paths, source.GGUF.Paths()...)
	}
	return append(paths, p.Reads...)
}

// linkedPaths returns the absolute paths of a file and of what each of its links leads to, without links to directories.
func linkedPaths(path string) (all []string) {
	const most = 40 // links, as Linux follows
	for range most {
		at := filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
		all = append(all, at)
		target, err := os.Readlink(at)
		if err != nil {
			return all
		}
		if path = target; !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(at), target)
		}
	}
	return all
}

// realPath returns an absolute path, with links resolved as far as it exists.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(realPath(dir), filepath.Base(path))
	}
	return path
}

// isCheckpoint reports whether a directory is empty or contains a file of weights.
func isCheckpoint(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && (len(entries) == 0 || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return (strings.HasSuffix(e.Name(), safetensors.Suffix) || ggufPart.MatchString(e.Name())) && hasWeights(filepath.Join(dir, e.Name()))
	}))
}

// isWeights reports whether a regular file contains weights, by its name and its beginning.
func isWeights(path string, info os.FileInfo) bool {
	return info.Mode().IsRegular() && (strings.HasSuffix(path, safetensors.Suffix) || gguf.Named(path)) && hasWeights(path)
}

// hasWeights is [limits.HasWeights] of the file at a path.
func hasWeights(path string) bool {
	f, info, err := limits.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	return limits.HasWeights(f, info.Size())
}
