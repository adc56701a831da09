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

// A remote reads a file where it is. Its methods may be called from several
// goroutines at once.
type remote struct {
	client *Client
	ctx    context.Context // of the command: ReadAt takes none
	name   string          // for messages
	where  string          // the hub's address of it
	commit string
	file   file
	chunks *chunks

	lock     sync.Mutex
	location string // where the hub sent the last request, "" where that is not known
	etag     string // of that place, by the first answer
	sum      hash.Hash
	summed   int            // chunks in sum
	digests  map[int]uint64 // of each chunk that came, by its first fetch
	damage   error          // the content is not what the hub says
}

// digestSeed keys the digests of chunks, so that no server can aim at a collision.
var digestSeed = maphash.MakeSeed()

// remote returns a reader of a file with chunks of its own.
func (c *Client) remote(ctx context.Context, r Repository, commit string, f file) *remote {
	return &remote{client: c, ctx: ctx, name: r.String() + ": " + f.Name, where: c.address(r, commit, f.Name), commit: commit, file: f,
		chunks: newChunks(), sum: f.hash(), digests: map[int]uint64{}}
}

// ReadAt reads as [io.ReaderAt] does.
func (r *remote) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("a negative offset")
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
		if !strings.HasPrefix(err.Error(), r.name) {
			err = fmt.Errorf("%s: %w", r.name, err)
		}
		return nil, err
	}
	return data, r.add(i, data)
}

// request fills p from an offset with one request, and returns how many bytes came.
func (r *remote) request(p []byte, off int64) (int, error) {
	r.lock.Lock()
	address := r.location
	r.lock.Unlock()
	direct := address != ""
	if !direct {
		address = r.where
	}
	response, hub, err := r.client.send(r.ctx, address, http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)}, "Accept-Encoding": {"identity"}})
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
		return 0, refusal{err}
	}
	return io.ReadFull(response.Body, p)
}

// check compares what an answer says of the file with what the hub listed.
func (r *remote) check(response *http.Response, hub http.Header, off int64, n int) error {
	const fix = "run again, and where that does not help, tell whoever runs the server"
	if commit := hub.Get("X-Repo-Commit"); commit != "" && commit != r.commit {
		return fmt.Errorf("the hub sends the file of commit %.40q, not of %s: %s", commit, r.commit, fix)
	}
	if tag := strings.Trim(strings.TrimPrefix(hub.Get("X-Linked-Etag"), "W/"), `"`); tag != "" && tag != r.file.etag() {
		return fmt.Errorf("the hub sends another file, of hash %.64q, not %s: %s", tag, r.file.etag(), fix)
	}
	total := hub.Get("X-Linked-Size")
	switch {
	case response.StatusCode == http.StatusPartialContent:
		span, all, _ := strings.Cut(strings.TrimPrefix(response.Header.Get("Content-Range"), "bytes "), "/")
		first, _, _ := strings.Cut(span, "-")
		if first != strconv.FormatInt(off, 10) {
			return fmt.Errorf("the server was asked for byte %d and sends %.40q: %s", off, span, fix)
		}
		if all != "*" {
			total = all
		}
	case off != 0 || int64(n) != r.file.Size:
		return errors.New("the server sends whole files only, and ranges are needed: check HF_ENDPOINT")
	case response.ContentLength >= 0:
		total = strconv.FormatInt(response.ContentLength, 10)
	}
	if total != "" && total != strconv.FormatInt(r.file.Size, 10) {
		return fmt.Errorf("the hub lists it with %d bytes, and the server has %.20s: %s", r.file.Size, total, fix)
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

// add compares a chunk with an earlier fetch of it, and hashes it when those before
// it have been hashed. When the whole file has been hashed, its hash is compared
// with the hub's. Chunks of a file that is read in order arrive nearly in order, and
// the few early ones wait for their turn. A chunk further ahead means that the file
// is read in another order: no chunk waits any longer, and hashing resumes when a
// later read fetches the missing chunk. If none does, the file is not compared with
// the hub's hash. Neither is a file whose reading stopped, once other files need the
// memory of its waiting chunks.
//
// A chunk is fetched again after it left the cache, such as in the second pass of a
// conversion. It must then have the bytes that it had before, which are the bytes in
// the hash of the file.
func (r *remote) add(i int, data []byte) error {
	digest := maphash.Bytes(digestSeed, data)
	r.lock.Lock()
	defer r.lock.Unlock()
	if first, again := r.digests[i]; again && first != digest {
		from, to := chunkRange(i, r.file.Size)
		r.damage = cmp.Or(r.damage, fmt.Errorf("%s: bytes %d to %d differ from those that were read before: one of the two was damaged on its way, run again", r.name, from, to-1))
		return r.damage
	}
	r.digests[i] = digest
	switch {
	case i > r.summed+mostAhead:
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

// hash takes the next chunk. The lock is held.
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

// Changed fails where what was read is not what the hub lists.
func (r *remote) Changed() error {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.damage
}

// wrong says that the content is not what the hub lists.
func (r *remote) wrong(got string) error {
	return fmt.Errorf("%s: what came has the hash %s, and the hub lists %s: it was damaged on its way, run again", r.name, got, r.file.etag())
}
