package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// Open opens a model of the hub, named as [Parse] describes. It downloads the small files to the
// cache. Reads of the checkpoint return the error of ctx once that is done.
func (c *Client) Open(ctx context.Context, source string) (*hf.Checkpoint, error) {
	r, err := Parse(source)
	if err != nil {
		return nil, err
	}
	l, err := c.list(ctx, r)
	if err != nil {
		return nil, named(r, err)
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
