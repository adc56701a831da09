package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git names its objects by it
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/internal/ranges"
)

// A listing is the hub's description of a revision.
type listing struct {
	Commit string `json:"sha"`
	Files  []file `json:"siblings"`
}

// A file is the hub's description of a file of a revision.
type file struct {
	Name string `json:"rfilename"`
	Size int64  `json:"size"`
	Blob string `json:"blobId"` // SHA-1 of git's object
	LFS  *lfs   `json:"lfs"`    // nil for files in git itself
}

// An lfs is a file's entry in Git LFS.
type lfs struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

var (
	sha1Text   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// etag returns the hash that identifies the content on the hub and in the cache.
func (f file) etag() string {
	if f.LFS != nil {
		return f.LFS.SHA256
	}
	return f.Blob
}

// hash returns a hash whose hexadecimal sum of the content is etag.
func (f file) hash() hash.Hash {
	if f.LFS != nil {
		return sha256.New()
	}
	h := sha1.New() //nolint:gosec // see above
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

// check returns an error for an invalid entry.
func (f file) check() error {
	switch {
	case !ranges.ValidName(f.Name):
		return fmt.Errorf("the hub lists a file %.120q: the name could lead out of its folder, or has control characters", f.Name)
	case f.Size < 0 || f.LFS != nil && f.LFS.Size != f.Size:
		return fmt.Errorf("the hub lists two different sizes of %s", f.Name)
	case f.LFS == nil && !sha1Text.MatchString(f.Blob), f.LFS != nil && !sha256Text.MatchString(f.LFS.SHA256):
		return fmt.Errorf("the hub lists no valid hash of %s", f.Name)
	}
	return nil
}

// list returns the hub's description of a revision.
func (c *Client) list(ctx context.Context, r Repository) (l listing, err error) {
	address := fmt.Sprintf("%s/api/models/%s/%s/revision/%s?blobs=true", c.Endpoint, r.Owner, r.Name, url.PathEscape(r.Revision))
	const largest = 64 << 20
	err = c.retries().Do(ctx, r.String(), func() (bool, error) {
		response, _, err := c.send(ctx, address, http.Header{"Accept": {"application/json"}})
		if err != nil {
			return false, err
		}
		defer done(response)
		text, err := io.ReadAll(io.LimitReader(response.Body, largest+1))
		if err != nil {
			return false, err
		}
		l = listing{}
		if err := json.Unmarshal(text, &l); err != nil || len(text) > largest {
			return false, ranges.Permanent{Err: fmt.Errorf("%s does not have the hub's API: check HF_ENDPOINT", c.Endpoint)}
		}
		return true, nil
	})
	if err != nil {
		return l, err
	}
	if !sha1Text.MatchString(l.Commit) {
		return l, fmt.Errorf("%s: the response has no commit of the revision: check HF_ENDPOINT", c.Endpoint)
	}
	for _, f := range l.Files {
		if err := f.check(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// address returns the URL of a file of a commit.
func (c *Client) address(r Repository, commit, name string) string {
	return fmt.Sprintf("%s/%s/%s/resolve/%s/%s", c.Endpoint, r.Owner, r.Name, commit, (&url.URL{Path: name}).EscapedPath())
}

// A cache is the cache folder of a model.
type cache struct{ dir string }

func (c *Client) cache(r Repository) cache {
	return cache{filepath.Join(c.Cache, "models--"+r.Owner+"--"+r.Name)}
}

func (k cache) snapshot(commit string) string { return filepath.Join(k.dir, "snapshots", commit) }

// has reports whether a file of a snapshot exists with its size. Its content was compared with the
// hash when it was downloaded.
func (k cache) has(commit string, f file) bool {
	info, err := os.Stat(filepath.Join(k.snapshot(commit), filepath.FromSlash(f.Name)))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size
}

// fetch downloads a file to the cache.
func (c *Client) fetch(ctx context.Context, k cache, r Repository, commit string, f file) error {
	blobs := filepath.Join(k.dir, "blobs")
	if err := os.MkdirAll(blobs, 0o777); err != nil {
		return err
	}
	blob := filepath.Join(blobs, f.etag())
	if info, err := os.Stat(blob); err != nil || info.Size() != f.Size {
		partial, err := newFile(filepath.Join(blobs, fmt.Sprintf("%s.%016x.incomplete", f.etag(), rand.Uint64())))
		if err != nil {
			return err
		}
		defer os.Remove(partial.Name())
		err = c.download(ctx, partial, r, commit, f)
		err = errors.Join(err, partial.Close())
		if err != nil {
			return err
		}
		if err := os.Rename(partial.Name(), blob); err != nil {
			return err
		}
	}
	return k.link(commit, f, blob)
}

// newFile creates a file, with the permissions that the umask leaves.
func newFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// link creates the name of a blob in the snapshot: a relative link, or a copy if the filesystem has no
// links.
func (k cache) link(commit string, f file, blob string) error {
	at := filepath.Join(k.snapshot(commit), filepath.FromSlash(f.Name))
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(at), blob)
	if err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if os.Symlink(target, at) == nil || k.has(commit, f) { // or another process made it
		return nil
	}
	content, err := limits.ReadFile(blob, f.Size)
	if err != nil {
		return err
	}
	return os.WriteFile(at, content, 0o666)
}

// name writes the reference of a revision.
func (k cache) name(revision, commit string) error {
	if revision == commit {
		return nil
	}
	at := filepath.Join(k.dir, "refs", filepath.FromSlash(revision))
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	return os.WriteFile(at, []byte(commit), 0o666)
}

// download writes a file to w. The reader compares it with the hub's hash.
func (c *Client) download(ctx context.Context, w io.Writer, r Repository, commit string, f file) error {
	_, err := io.Copy(w, io.NewSectionReader(c.remote(ctx, r, commit, f, ranges.NewChunks()), 0, f.Size))
	return err
}
