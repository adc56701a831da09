package hub

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// A remote reads a file of the hub. Its methods are safe for concurrent use.
type remote struct {
	client *Client
	ctx    context.Context // of Open: ReadAt has none
	name   string          // used in errors
	where  string          // URL on the hub
	commit string
	file   file
	chunks *chunks

	lock     sync.Mutex
	location string // URL to which the hub redirected the last request, or ""
	etag     string // of the first response from there
	sum      hash.Hash
	summed   int            // number of chunks in sum
	digests  map[int]uint64 // of each chunk at its first fetch
	damage   error          // set if the content differs from the hub's hash
}

// digestSeed is the key of the digests, so that a server cannot construct collisions.
var digestSeed = maphash.MakeSeed()

// remote returns a reader of a file, with separate chunks.
func (c *Client) remote(ctx context.Context, r Repository, commit string, f file) *remote {
	return &remote{client: c, ctx: ctx, name: r.String() + ": " + f.Name, where: c.address(r, commit, f.Name), commit: commit, file: f,
		chunks: newChunks(), sum: f.hash(), digests: map[int]uint64{}}
}

// ReadAt implements [io.ReaderAt].
func (r *remote) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: negative offset: %d", r.name, off)
	}
	for n < len(p) {
		if off >= r.file.Size {
			return n, io.EOF
		}
		i := chunkOf(off)
		data, err := r.chunks.get(r, i)
		if err != nil {
			return n, err
		}
		from, _ := chunkRange(i, r.file.Size)
		copied := copy(p[n:], data[off-from:])
		n, off = n+copied, off+int64(copied)
	}
	return n, nil
}

// fetch returns a chunk from the server.
func (r *remote) fetch(i int) ([]byte, error) {
	from, to := chunkRange(i, r.file.Size)
	data := make([]byte, to-from)
	got := 0
	err := r.client.retry(r.ctx, r.name, func() (bool, error) {
		n, err := r.request(data[got:], from+int64(got))
		got += n
		if err == nil && got < len(data) {
			err = io.ErrUnexpectedEOF
		}
		return n > 0, err
	})
	if err != nil {
		return nil, err
	}
	return data, r.add(i, data)
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
	response, hub, err := r.client.send(r.ctx, address, http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)},
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
		return 0, permanent{err}
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
		span, all, _ := strings.Cut(strings.TrimPrefix(response.Header.Get("Content-Range"), "bytes "), "/")
		first, _, _ := strings.Cut(span, "-")
		if first != strconv.FormatInt(off, 10) {
			return fmt.Errorf("requested byte %d, got %.40q: %s", off, span, fix)
		}
		if all != "*" {
			total = all
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

// add compares a chunk with its earlier fetch, if any, and hashes it after the chunks before it. Once
// the whole file is hashed, it compares the hash with the hub's.
//
// In a file that is read in order, chunks arrive nearly in order, and a few early ones wait. A chunk
// further ahead means that the file is read in another order. The waiting chunks are then dropped,
// and hashing resumes when a later read fetches the missing chunk. If none does, the file is not
// compared with the hub's hash. The same holds for a file whose reading stopped, once other files need
// the memory of its waiting chunks.
//
// A chunk that left the cache is fetched again, for example in the second pass of a conversion. It
// must then have the same bytes as before, which are those in the hash of the file.
func (r *remote) add(i int, data []byte) error {
	digest := maphash.Bytes(digestSeed, data)
	r.lock.Lock()
	defer r.lock.Unlock()
	if first, again := r.digests[i]; again && first != digest {
		from, to := chunkRange(i, r.file.Size)
		r.damage = cmp.Or[error](r.damage,
			&subjectError{r.name, fmt.Errorf("bytes %d to %d differ from an earlier read: one of the two was damaged in transfer; run again", from,
				to-1)})
		return r.damage
	}
	r.digests[i] = digest
	switch {
	case i > r.summed+maxAhead:
		r.chunks.forget(r)
	case i > r.summed:
		r.chunks.hold(chunkKey{r, i}, data)
	case i == r.summed:
		for ; data != nil; data = r.chunks.take(chunkKey{r, r.summed}) {
			r.hash(data)
		}
	}
	return r.damage
}

// hash adds the next chunk to the hash. The caller holds the lock.
func (r *remote) hash(data []byte) {
	r.sum.Write(data)
	r.summed++
	if _, to := chunkRange(r.summed-1, r.file.Size); to == r.file.Size {
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
	return r.damage
}

// wrong returns the error for a file with another hash.
func (r *remote) wrong(got string) error {
	return &subjectError{r.name, fmt.Errorf("got content of hash %s, want %s: it was damaged in transfer; run again", got, r.file.etag())}
}
