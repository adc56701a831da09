package hub

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/internal/ranges"
)

// A remote reads a file of the hub. Its methods are safe for concurrent use.
type remote struct {
	ranges.File
	client *Client
	where  string // URL on the hub
	commit string
	file   file

	lock     sync.Mutex
	location string // URL to which the hub redirected the last request, or ""
	etag     string // of the first response from there
	sum      hash.Hash
	summed   int   // number of chunks in sum
	damage   error // set if the content differs from the hub's hash
}

// remote returns a reader of a file, whose chunks are kept in the given cache.
func (c *Client) remote(ctx context.Context, r Repository, commit string, f file, chunks *ranges.Chunks) *remote {
	m := &remote{client: c, where: c.address(r, commit, f.Name), commit: commit, file: f, sum: f.hash()}
	m.File = ranges.File{Context: ctx, Name: r.String() + ": " + f.Name, Size: f.Size, Chunks: chunks, Retry: c.retries(), Request: m.request,
		Arrived: m.add}
	return m
}

// request fills p from an offset with one request, and returns the number of bytes received.
func (r *remote) request(p []byte, off int64) (int, error) {
	r.lock.Lock()
	address := r.location
	r.lock.Unlock()
	direct := address != ""
	if !direct {
		address = r.where
	}
	response, hub, err := r.client.send(r.Context, address, http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)},
		"Accept-Encoding": {"identity"}})
	if _, old := errors.AsType[expired](err); old || direct && err != nil {
		r.lock.Lock()
		r.location = "" // ask the hub again
		r.lock.Unlock()
	}
	if err != nil {
		return 0, err
	}
	defer done(response)
	if err := r.check(response, hub, off, len(p)); err != nil {
		return 0, ranges.Permanent{Err: err}
	}
	return io.ReadFull(response.Body, p)
}

// check compares the headers of a response with the hub's listing.
func (r *remote) check(response *http.Response, hub http.Header, off int64, n int) error {
	const fix = "run again; if that fails, tell the operator of the server"
	if commit := hub.Get("X-Repo-Commit"); commit != "" && commit != r.commit {
		return fmt.Errorf("got the file of commit %.40q, want that of %s: %s", commit, r.commit, fix)
	}
	if tag := strings.Trim(strings.TrimPrefix(hub.Get("X-Linked-Etag"), "W/"), `"`); tag != "" && tag != r.file.etag() {
		return fmt.Errorf("got a file of hash %.64q, want %s: %s", tag, r.file.etag(), fix)
	}
	total := hub.Get("X-Linked-Size")
	switch {
	case response.StatusCode == http.StatusPartialContent:
		first, all := ranges.ContentRange(response.Header)
		if first != off {
			return fmt.Errorf("requested byte %d, got %.40q: %s", off, response.Header.Get("Content-Range"), fix)
		}
		if all >= 0 {
			total = strconv.FormatInt(all, 10)
		}
	case off != 0 || int64(n) != r.file.Size:
		return errors.New("the server does not support range requests: check HF_ENDPOINT")
	case response.ContentLength >= 0:
		total = strconv.FormatInt(response.ContentLength, 10)
	}
	if total != "" && total != strconv.FormatInt(r.file.Size, 10) {
		return fmt.Errorf("the hub lists %d bytes, the server has %.20s: %s", r.file.Size, total, fix)
	}
	tag := response.Header.Get("ETag")
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.location = response.Request.URL.String(); r.etag == "" {
		r.etag = tag
	}
	if tag != "" && tag != r.etag {
		return fmt.Errorf("the file changed on the server while it was read (ETag %.80s, before %.80s): run again", tag, r.etag)
	}
	return nil
}

// add hashes a chunk after the chunks before it. Once the whole file is hashed, it compares the hash with the
// hub's.
//
// In a file that is read in order, chunks arrive nearly in order, and a few early ones wait. A chunk
// further ahead means that the file is read in another order. The waiting chunks are then dropped,
// and hashing resumes when a later read fetches the missing chunk. If none does, the file is not
// compared with the hub's hash. The same holds for a file whose reading stopped, once other files need
// the memory of its waiting chunks.
//
// A chunk that is fetched again has the same bytes as before, which are those in the hash of the file.
func (r *remote) add(i int, data []byte) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	switch {
	case i > r.summed+ranges.MaxAhead:
		r.Chunks.Forget(&r.File)
	case i > r.summed:
		r.Chunks.Hold(&r.File, i, data)
	case i == r.summed:
		for ; data != nil; data = r.Chunks.Take(&r.File, r.summed) {
			r.hash(data)
		}
	}
	return r.damage
}

// hash adds the next chunk to the hash. The caller holds the lock.
func (r *remote) hash(data []byte) {
	r.sum.Write(data)
	r.summed++
	if _, to := ranges.ChunkRange(r.summed-1, r.file.Size); to == r.file.Size {
		if got := hex.EncodeToString(r.sum.Sum(nil)); got != r.file.etag() {
			r.damage = r.wrong(got)
		}
	}
}

// Identity returns the hub's hash of the file.
func (r *remote) Identity() string { return r.file.etag() }

// Changed returns an error if the content that was read differs from the hub's hash or from an earlier
// read.
func (r *remote) Changed() error {
	r.lock.Lock()
	defer r.lock.Unlock()
	return cmp.Or(r.damage, r.File.Changed())
}

// wrong returns the error for a file with another hash.
func (r *remote) wrong(got string) error {
	return &ranges.SubjectError{Subject: r.Name, Err: fmt.Errorf("got content of hash %s, want %s: it was damaged in transfer; run again", got,
		r.file.etag())}
}
