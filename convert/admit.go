package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// Admit fails where Run would refuse the destination, and makes nothing.
func (p *Plan) Admit(dst string, force bool) error {
	o := p.outputAt(dst)
	o.force = force
	if err := o.admit(p.Source.Source); err != nil {
		return err
	}
	return o.own()
}

// names returns the files of the result by their paths in the partial
// directory, with slashes.
func (p *Plan) names() map[string]bool {
	if p.single {
		return map[string]bool{singleName: true}
	}
	names := map[string]bool{hf.ConfigName: true, safetensors.IndexName: true}
	for _, f := range p.Files {
		names[f.Name] = true
	}
	for _, other := range p.others() {
		names[other.Name] = true
	}
	for _, file := range p.small {
		names[file.Name] = true
	}
	return names
}

// admit fails where the destination may not be written.
func (o *output) admit(source *hf.Checkpoint) error {
	if err := o.apart(source); err != nil {
		return err
	}
	return o.admitName()
}

// admitName fails where there is something at the destination that may not be
// replaced.
func (o *output) admitName() error {
	info, err := os.Lstat(o.final)
	switch {
	case errors.Is(err, os.ErrNotExist):
		o.replace = false
		return nil
	case err != nil:
		return cannotWrite(filepath.Dir(o.final), err)
	case !o.force:
		return fmt.Errorf("%s: the destination exists: choose another name, or replace it with --force", o.final)
	case info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s: a symbolic link, which --force does not replace: name what it leads to, or remove it yourself", o.final)
	case o.single && !isWeights(o.final, info), !o.single && !isCheckpoint(o.final):
		return fmt.Errorf("%s: --force replaces a checkpoint, and this is none: choose another name, or remove it yourself", o.final)
	}
	o.replace = true
	return o.replaceable()
}

// replaceable fails where files would be lost that are no part of a checkpoint:
// below the destination, and below what an earlier run moved away.
func (o *output) replaceable() error {
	if o.single {
		return nil
	}
	for _, dir := range []string{o.final, o.replaced} {
		name, err := o.stray(dir)
		if err != nil {
			return fmt.Errorf("%s: it cannot be seen what --force would delete: %w", dir, err)
		}
		if name != "" {
			return fmt.Errorf("%s is no part of a checkpoint: --force would delete it; move it away or choose another destination", filepath.Join(dir, filepath.FromSlash(name)))
		}
	}
	return nil
}

// own fails where the partial directory holds what no run of this program left
// there: it has neither the marker nor only files of the result.
func (o *output) own() error {
	if err := o.noLinks(); err != nil {
		return err
	}
	if _, err := os.Lstat(o.path(markerName)); err == nil {
		return nil
	}
	name, err := o.stray(o.partial)
	if err != nil {
		return fmt.Errorf("%s: it cannot be looked through: %w", o.partial, err)
	}
	if name != "" {
		return fmt.Errorf("%s: it has %q, which no run of this program writes, in the place where the result is written: move it away or choose another destination", o.partial, name)
	}
	return nil
}

// noLinks fails where something in the partial directory, or the directory itself, is a
// link or another thing through which a run would write elsewhere.
func (o *output) noLinks() error {
	return filepath.WalkDir(o.partial, func(path string, e fs.DirEntry, err error) error {
		switch {
		case path == o.partial && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("%s: it cannot be looked through: %w", o.partial, err)
		case path == o.partial && !e.IsDir(), !e.IsDir() && !e.Type().IsRegular():
			return fmt.Errorf("%s: no run of this program makes a link or special file here: move it away or choose another destination", path)
		}
		return nil
	})
}

// kept are the files that a model on the hub has beside its weights, and that a
// result may be without.
var kept = []string{"README.md", ".gitattributes"}

// stray returns the first file below a directory that is neither one of the
// result nor, in the directory itself, one that a checkpoint has by its name; ""
// where there is none.
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
		weights := !strings.Contains(name, "/") && (strings.HasSuffix(name, safetensors.Suffix) || strings.HasSuffix(name, safetensors.Suffix+".index.json"))
		if o.names[name] || weights || slices.Contains(kept, name) || name == markerName {
			return nil
		}
		found = name
		return fs.SkipAll
	})
	return found, err
}

// apart fails where source and destination are the same or one holds the other.
func (o *output) apart(source *hf.Checkpoint) error {
	from, to := realPath(source.Path), realPath(o.final)
	if from == to || from == realPath(o.partial) || from == realPath(o.replaced) {
		return fmt.Errorf("%s: source and destination are the same: choose another destination", o.final)
	}
	within := func(inner, outer string) bool { return strings.HasPrefix(inner, outer+string(filepath.Separator)) }
	if !source.Single && within(to, from) || within(from, to) {
		return fmt.Errorf("%s: source and destination lie within each other: choose a destination beside the source", o.final)
	}
	return nil
}

// realPath returns an absolute path without links, as far as it exists.
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

// isCheckpoint reports whether a directory is empty or has weights.
func isCheckpoint(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && (len(entries) == 0 || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasSuffix(e.Name(), safetensors.Suffix)
	}))
}

// isWeights reports whether a file is one of weights by its name.
func isWeights(path string, info os.FileInfo) bool {
	return info.Mode().IsRegular() && (strings.HasSuffix(path, safetensors.Suffix) || strings.HasSuffix(path, GGUFSuffix))
}
