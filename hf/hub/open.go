package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// Open opens a model of the hub, named as [Parse] describes. It downloads the small files to the
// cache. Reads of the checkpoint return the error of ctx once that is done. A GGUF file of a repository is not a checkpoint of
// package hf: use [Client.OpenGGUF].
func (c *Client) Open(ctx context.Context, source string) (*hf.Checkpoint, error) {
	r, err := Parse(source)
	if err != nil {
		return nil, err
	}
	l, err := c.list(ctx, r)
	if err != nil {
		return nil, named(r, err)
	}
	if !slices.ContainsFunc(l.Files, func(f file) bool { return strings.HasSuffix(f.Name, safetensors.Suffix) }) && len(l.ggufs()) > 0 {
		return nil, fmt.Errorf("%s: %w: no safetensors files; name one of its GGUF files, such as %s/%s", r, fs.ErrNotExist, r, l.ggufs()[0])
	}
	k := c.cache(r)
	var remotes []hf.Remote
	var skipped []hf.Skipped
	shared := ranges.NewChunks()
	for _, f := range l.Files {
		reason := hf.Unread(f.Name, f.Size)
		switch {
		case reason != "":
			skipped = append(skipped, hf.Skipped{Name: f.Name, Reason: reason})
		case k.has(l.Commit, f):
		case strings.HasSuffix(f.Name, safetensors.Suffix):
			reader := c.remote(ctx, r, l.Commit, f, shared)
			remotes = append(remotes, hf.Remote{Name: f.Name, URL: r.String() + "/" + f.Name, Size: f.Size, Reader: reader})
		default:
			if err := c.fetch(ctx, k, r, l.Commit, f); err != nil {
				return nil, named(r, err)
			}
		}
	}
	if err := k.keep(r.Revision, l.Commit); err != nil {
		return nil, fmt.Errorf("%s: cannot write to the cache %s (%w): set HF_HOME to a writable folder", r, k.dir, err)
	}
	checkpoint, err := hf.OpenRemote(k.snapshot(l.Commit), remotes, skipped)
	if err != nil {
		return nil, named(r, err)
	}
	checkpoint.Path = r.String()
	return checkpoint, nil
}

// OpenGGUF opens a GGUF file of a repository, as [gguf.Open] does, with the other parts if it is split. A model of which all files are in
// the cache is read there. Reads return the error of ctx once that is done.
func (c *Client) OpenGGUF(ctx context.Context, r Repository) (*gguf.File, error) {
	l, err := c.list(ctx, r)
	if err != nil {
		return nil, named(r, err)
	}
	path := filepath.Join(c.cache(r).snapshot(l.Commit), filepath.FromSlash(r.File))
	if f, err := gguf.Open(path); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	folder, shared := strings.TrimSuffix(r.String(), r.File), ranges.NewChunks()
	return gguf.OpenWith(r.String(), func(name string) (*gguf.File, error) {
		at := slices.IndexFunc(l.Files, func(f file) bool { return folder+f.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("%s: %w: the GGUF files of the repository are %s", name, fs.ErrNotExist, listed(l.ggufs()))
		}
		f := l.Files[at]
		whole := r
		whole.File = "" // the reader's errors have the name of the file after that of the repository
		return gguf.NewFile(c.remote(ctx, whole, l.Commit, f, shared), f.Size, name)
	})
}

// ggufs returns the names of the GGUF files.
func (l listing) ggufs() (names []string) {
	for _, f := range l.Files {
		if gguf.Named(f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// listed returns a list of names that is not too long.
func listed(names []string) string {
	const most = 8
	if len(names) == 0 {
		return "none"
	}
	if more := len(names) - most; more > 1 {
		names = append(names[:most:most], fmt.Sprintf("… and %d more", more))
	}
	return strings.Join(names, ", ")
}

// keep creates the snapshot's folder and the reference of the revision.
func (k cache) keep(revision, commit string) error {
	if err := os.MkdirAll(k.snapshot(commit), 0o777); err != nil {
		return err
	}
	return k.name(revision, commit)
}

// named adds the model's name to an error that does not name it or one of its files.
func named(r Repository, err error) error {
	if _, ok := errors.AsType[*ranges.SubjectError](err); ok {
		return err
	}
	if e, ok := errors.AsType[*safetensors.ContainerError](err); ok && strings.HasPrefix(e.Path, r.String()) {
		return err
	}
	return &ranges.SubjectError{Subject: r.String(), Err: err}
}
