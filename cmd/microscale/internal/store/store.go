// Package store reads checkpoints from object stores and web servers by range requests, without downloading the
// weights first:
//
//	s3://bucket/folder            Amazon S3, or a store with its API (AWS_ENDPOINT_URL)
//	gs://bucket/folder            Google Cloud Storage, by its XML API
//	https://host/folder           a web server that answers range requests; http://host/folder is not encrypted
//	s3://bucket/x.safetensors     one file
//	s3://bucket/x.gguf            one GGUF file, or a part of several
//
// Small files (configuration, index, tokenizer) are downloaded to a temporary directory, which the checkpoint's
// Close removes. Of weights, headers are read when the checkpoint is opened, and tensors on demand. Requests name the
// version of the object that was opened (If-Match), and responses are compared with it, so that an object that is
// replaced meanwhile is an error. Web servers that send weak ETags, or only a time of modification, get no condition;
// of those that send neither, only the size and what is read twice are compared.
//
// Credentials come from where the tools of each cloud keep them, never from a URL. Errors wrap [fs.ErrNotExist] if
// there is no such bucket or object, and [fs.ErrPermission] if the store denies access.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// forms are the URLs that name a checkpoint.
const forms = "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, https://HOST/FOLDER (or http://)"

// An object is a file of a store.
type object struct {
	name    string // in the folder of the checkpoint, with slashes
	size    int64
	version string // ETag, or time of modification; "": unknown
}

// A place is the folder of a store, or its one file.
type place interface {
	// list returns the objects of the folder and those in it.
	list(ctx context.Context) ([]object, error)
	// stat returns the one file.
	stat(ctx context.Context) (object, error)
	// read requests n bytes of an object from an offset.
	read(ctx context.Context, o object, off, n int64) (*answer, error)
	// inside returns the place of name, relative to the folder; name may begin with ../ if the place is a file.
	inside(name string) place
	// String returns the URL without its query.
	String() string
}

// An answer is a response to a request for a range. The caller closes the body.
type answer struct {
	io.ReadCloser
	header  http.Header
	partial bool   // status 206
	version string // as of an object
}

// A scheme is the prefix of URLs, with the function that returns the place that one names.
type scheme struct {
	prefix string
	place  func(ctx context.Context, o opener, u *url.URL) (place, error)
}

var schemes = []scheme{{"s3://", newS3}, {"gs://", newGoogle}, {"https://", newWeb}, {"http://", newWeb}}

// begins reports whether a URL has the scheme, in upper or lower case.
func (s scheme) begins(address string) bool {
	return len(address) >= len(s.prefix) && strings.EqualFold(address[:len(s.prefix)], s.prefix)
}

// Named reports whether an argument is the URL of a store.
func Named(arg string) bool {
	return slices.ContainsFunc(schemes, func(s scheme) bool { return s.begins(arg) })
}

// An opener opens checkpoints.
type opener struct {
	retry ranges.Retry
}

// Open opens the checkpoint that a URL names. Its reads return the error of ctx once that is done.
func Open(ctx context.Context, address string) (*hf.Checkpoint, error) {
	return opener{}.open(ctx, address)
}

func (o opener) open(ctx context.Context, address string) (*hf.Checkpoint, error) {
	at, err := o.place(ctx, address)
	if err != nil {
		return nil, err
	}
	if gguf.Named(at.String()) {
		return o.openGGUF(ctx, at)
	}
	if strings.HasSuffix(at.String(), safetensors.Suffix) {
		return o.openFile(ctx, at)
	}
	return o.openFolder(ctx, at)
}

// place parses a URL.
func (o opener) place(ctx context.Context, address string) (place, error) {
	u, err := url.Parse(address)
	if err != nil && strings.Contains(address, "@") {
		return nil, fmt.Errorf("SRC or DST is not the URL of a checkpoint, and may contain a password before its @: want %s", forms)
	}
	if err != nil || u.Host == "" || strings.ContainsFunc(address, unicode.IsControl) {
		return nil, fmt.Errorf("%.200q is not the URL of a checkpoint: want %s", WithoutQuery(address), forms)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s: a URL with a password ends up in logs: remove what is before the @", WithoutQuery(address))
	}
	for _, s := range schemes {
		if s.begins(address) {
			return s.place(ctx, o, u)
		}
	}
	return nil, fmt.Errorf("%s: want %s", WithoutQuery(address), forms)
}

// WithoutQuery returns a URL as messages show it: without its query, which may be a signature, and without a user and a
// password.
func WithoutQuery(address string) string {
	address, _, _ = strings.Cut(address, "?")
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return address
	}
	host, path, folder := strings.Cut(rest, "/")
	if folder {
		path = "/" + path
	}
	return scheme + "://" + host[strings.LastIndex(host, "@")+1:] + path
}

// try calls f until it succeeds.
func (o opener) try(ctx context.Context, what string, f func() error) error {
	return o.retry.Do(ctx, what, func() (bool, error) { return false, f() })
}

// openFile opens a place that is one safetensors file.
func (o opener) openFile(ctx context.Context, at place) (*hf.Checkpoint, error) {
	only, err := at.stat(ctx)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.NewFile(o.reader(ctx, at, only, ranges.NewChunks()), only.size, at.String())
	if err != nil {
		return nil, err
	}
	return hf.OpenFile(f, nil, nil)
}

// openGGUF opens a place that is a GGUF file, with the other parts if it is split.
func (o opener) openGGUF(ctx context.Context, at place) (*hf.Checkpoint, error) {
	shared := ranges.NewChunks()
	f, err := gguf.OpenWith(at.String(), func(name string) (*gguf.File, error) {
		one := at.inside("../" + path.Base(name))
		object, err := one.stat(ctx)
		if err != nil {
			return nil, err
		}
		return gguf.NewFile(o.reader(ctx, one, object, shared), object.size, name)
	})
	if err != nil {
		return nil, err
	}
	return llamacpp.View(f)
}

// openFolder opens a place that is a folder.
func (o opener) openFolder(ctx context.Context, at place) (c *hf.Checkpoint, err error) {
	objects, err := at.list(ctx)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s: %w: there is no object of a checkpoint: check the name", at, fs.ErrNotExist)
	}
	if first := llamacpp.FirstPart(namesOf(objects)); first != "" {
		return o.openGGUF(ctx, at.inside(first))
	}
	dir, remove, err := durable.Temp(temporary)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: small files need a directory for temporary files", at, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	shared := ranges.NewChunks()
	var remotes []hf.Remote
	var skipped []hf.Skipped
	var small []object
	for _, f := range objects {
		reason := hf.Unread(f.name, f.size)
		switch {
		case reason != "":
			skipped = append(skipped, hf.Skipped{Name: f.name, Reason: reason})
		case strings.HasSuffix(f.name, safetensors.Suffix):
			remotes = append(remotes, hf.Remote{Name: f.name, URL: at.String() + "/" + f.name, Size: f.size, Reader: o.reader(ctx, at, f, shared)})
		default:
			small = append(small, f)
		}
	}
	if err := o.download(ctx, at, small, dir, shared); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(objects, func(f object) bool { return gguf.Named(f.name) }); i >= 0 && len(remotes) == 0 {
		return nil, fmt.Errorf("%s: %w: no safetensors files; name a GGUF file, such as %[1]s/%[3]s", at, fs.ErrNotExist, objects[i].name)
	}
	if c, err = hf.OpenRemote(dir, remotes, skipped); err != nil {
		return nil, renamed(err, dir, at)
	}
	if len(c.Shards()) > 1 && !c.Index { // shards of two checkpoints may have the same names
		return nil, fmt.Errorf("%s: %w: there are %d files of weights and no %s: an upload has not ended, or ended early; it comes last",
			at, fs.ErrNotExist, len(c.Shards()), safetensors.IndexName)
	}
	c.Path = at.String()
	c.OnClose(remove)
	return c, nil
}

// namesOf returns the names of objects.
func namesOf(objects []object) (names []string) {
	for _, f := range objects {
		names = append(names, f.name)
	}
	return names
}

// temporary begins the names of temporary directories.
const temporary = "microscale-store-"

// Limits of a checkpoint.
const (
	largestOther = 256 << 20 // bytes of a file that a server sends only as a whole
	allOthers    = 1 << 30   // bytes of all of them
	mostObjects  = 10_000    // objects in a folder
	atOnce       = 8         // files that a web server is asked for at once
	downloads    = 4         // files that are downloaded at once; the current and the next chunk of each fit into ranges.Chunks
)

// renamed replaces the temporary directory in an error about a file by the place.
func renamed(err error, dir string, at place) error {
	if e, ok := errors.AsType[*safetensors.ContainerError](err); ok {
		if rest, inside := strings.CutPrefix(e.Path, dir); inside {
			e.Path = at.String() + filepath.ToSlash(rest)
		}
		return err
	}
	return err
}

// download writes objects to a directory.
func (o opener) download(ctx context.Context, at place, objects []object, dir string, chunks *ranges.Chunks) error {
	total := int64(0)
	for _, f := range objects {
		if total += f.size; total > allOthers {
			return fmt.Errorf("%s: the files besides the weights have more than %d GiB: name the folder of one checkpoint", at, allOthers>>30)
		}
	}
	failures := make([]error, len(objects))
	parallel.Each(len(objects), downloads, func(i int) {
		path := filepath.Join(dir, filepath.FromSlash(objects[i].name))
		failures[i] = fetch(o.reader(ctx, at, objects[i], chunks), path)
	})
	return cmp.Or(failures...)
}

// fetch downloads an object to a path.
func fetch(r *reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, io.NewSectionReader(r, 0, r.Size))
	return errors.Join(err, file.Close())
}

// content returns the bytes of a small object.
func (o opener) content(ctx context.Context, at place, f object) ([]byte, error) {
	r := o.reader(ctx, at, f, ranges.NewChunks())
	if f.size > largestOther {
		return nil, fmt.Errorf("%s: got %d bytes, want at most %d", r.Name, f.size, largestOther)
	}
	data := make([]byte, f.size)
	_, err := io.ReadFull(io.NewSectionReader(r, 0, f.size), data)
	return data, err
}

// A reader reads an object.
type reader struct {
	ranges.File
	at     place
	object object
}

func (o opener) reader(ctx context.Context, at place, f object, chunks *ranges.Chunks) *reader {
	name := at.String()
	if f.name != "" {
		name += "/" + f.name
	}
	r := &reader{at: at, object: f}
	r.File = ranges.File{Context: ctx, Name: name, Size: f.size, Chunks: chunks, Retry: o.retry, Request: r.request}
	return r
}

// Identity identifies the version of the object, by its ETag where it has one.
func (r *reader) Identity() string { return fmt.Sprintf("%d %s", r.object.size, r.object.version) }

// request fills p from an offset with one request, and returns the number of bytes received.
func (r *reader) request(p []byte, off int64) (int, error) {
	a, err := r.at.read(r.Context, r.object, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.Close() }() // its errors no longer matter
	switch {
	case a.partial:
		first, total := ranges.ContentRange(a.header)
		if first != off || total >= 0 && total != r.object.size {
			return 0, ranges.Permanent{Err: fmt.Errorf("requested bytes from %d of %d on, got %q: the file changed, or a proxy is wrong; run again",
				off, r.object.size, a.header.Get("Content-Range"))}
		}
	case off == 0 && int64(len(p)) == r.object.size:
	case r.object.name == "" || isWeights(r.object.name) || r.object.size > largestOther:
		return 0, ranges.Permanent{Err: errNoRanges}
	}
	if version := a.version; version != "" && r.object.version != "" && version != r.object.version {
		return 0, ranges.Permanent{Err: errChanged}
	}
	if !a.partial {
		if _, err := io.CopyN(io.Discard, a, off); err != nil {
			return 0, err
		}
	}
	return io.ReadFull(a, p)
}

var (
	errNoRanges = errors.New("the server does not support range requests: download the file first")
	errChanged  = errors.New("the object changed while it was read: run again when nothing writes to it")
)
