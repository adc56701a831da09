package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/internal/ranges"
)

// lfsKind is the type of documents of Git LFS.
const lfsKind = "application/vnd.git-lfs+json"

// An object is one of the answer of the batch API.
type object struct {
	OID     string
	Actions struct{ Upload, Verify *action }
	Error   *struct {
		Code    int
		Message string
	}
}

// An action is a request that the hub asks for. That of an upload in parts has, in place of headers, their size
// (chunk_size) and the address of each, by its number.
type action struct {
	Href   string
	Header map[string]any
}

// upload sends the objects that the hub lacks.
func (p *pusher) upload(ctx context.Context, files []*File) error {
	var done atomic.Int64
	var total int64
	for _, f := range files {
		total += f.Size
	}
	for some := range slices.Chunk(files, most) {
		byName := map[string]*File{}
		var wanted []map[string]any
		for _, f := range some {
			if err := f.digest(ctx); err != nil {
				return &ranges.SubjectError{Subject: f.Name, Err: err}
			}
			if byName[f.sum] == nil {
				wanted = append(wanted, map[string]any{"oid": f.sum, "size": f.Size})
			}
			byName[f.sum] = f
		}
		objects, err := p.batch(ctx, wanted)
		if err != nil {
			return err
		}
		for _, o := range objects {
			f := byName[o.OID]
			switch {
			case f == nil:
				return fmt.Errorf("%s: the hub answers for an object that nobody asked for: check HF_ENDPOINT", p.repository)
			case o.Error != nil:
				return fmt.Errorf("%s: %s: the hub rejects the object: %.200q (%d)", p.repository, f.Name, o.Error.Message, o.Error.Code)
			case o.Actions.Upload != nil:
				err = p.object(ctx, f, o, func(n int64) { p.Progress(min(done.Add(n), total), total) })
			}
			if err != nil {
				return &ranges.SubjectError{Subject: f.Name, Err: err}
			}
			f.Sent = o.Actions.Upload != nil
			delete(byName, o.OID)
		}
		if len(byName) > 0 {
			return fmt.Errorf("%s: the hub does not answer for %d objects: check HF_ENDPOINT", p.repository, len(byName))
		}
	}
	return nil
}

// batch asks where to send objects.
func (p *pusher) batch(ctx context.Context, wanted []map[string]any) ([]object, error) {
	body, err := json.Marshal(map[string]any{"operation": "upload", "transfers": []string{"basic", "multipart"}, "objects": wanted,
		"hash_algo": "sha256", "ref": map[string]string{"name": p.repository.Revision}})
	if err != nil {
		return nil, err
	}
	var answer struct{ Objects []object }
	err = p.send(ctx, request{method: "POST", address: p.client.Endpoint + "/" + p.repository.Owner + "/" + p.repository.Name +
		".git/info/lfs/objects/batch", kind: lfsKind, header: map[string]string{"Accept": lfsKind}, body: strings.NewReader(string(body)),
		size: int64(len(body))}, &answer)
	return answer.Objects, err
}

// object sends an object: whole, or in parts.
func (p *pusher) object(ctx context.Context, f *File, o object, progress func(int64)) error {
	content, closing, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = closing() }() // only read
	up := o.Actions.Upload
	if size, ok := up.Header["chunk_size"]; ok {
		err = p.parts(ctx, f, up, fmt.Sprint(size), content, progress)
	} else {
		header := map[string]string{}
		for key, value := range up.Header {
			header[key] = fmt.Sprint(value)
		}
		err = p.send(ctx, request{method: "PUT", address: up.Href, header: header, body: content, size: f.Size, sent: progress}, nil)
	}
	if err != nil || o.Actions.Verify == nil {
		return err
	}
	return p.document(ctx, o.Actions.Verify.Href, map[string]any{"oid": f.sum, "size": f.Size})
}

// document sends a document of Git LFS.
func (p *pusher) document(ctx context.Context, address string, document any) error {
	data, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return p.send(ctx, request{method: "POST", address: address, kind: lfsKind, header: map[string]string{"Accept": lfsKind},
		body: strings.NewReader(string(data)), size: int64(len(data))}, nil)
}

// parts sends an object in parts of the size that the hub asks for, some at once, and completes it.
func (p *pusher) parts(ctx context.Context, f *File, up *action, chunk string, content io.ReaderAt, progress func(int64)) error {
	size, err := strconv.ParseInt(chunk, 10, 64)
	if err != nil || size <= 0 {
		return fmt.Errorf("the hub asks for parts of %.20q bytes: check HF_ENDPOINT", chunk)
	}
	type part struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	parts := make([]part, (f.Size+size-1)/size)
	failures := make([]error, len(parts))
	const atOnce = 4
	parallel.Each(len(parts), atOnce, func(i int) {
		if ctx.Err() != nil {
			failures[i] = ctx.Err()
			return
		}
		address, ok := up.Header[strconv.Itoa(i+1)]
		if !ok {
			failures[i] = fmt.Errorf("the hub names no address for part %d of %d: check HF_ENDPOINT", i+1, len(parts))
			return
		}
		at, n := int64(i)*size, min(size, f.Size-int64(i)*size)
		var header http.Header
		failures[i] = p.send(ctx, request{method: "PUT", address: fmt.Sprint(address), body: io.NewSectionReader(content, at, n), size: n,
			sent: progress}, &header)
		if parts[i] = (part{i + 1, header.Get("ETag")}); failures[i] == nil && parts[i].ETag == "" {
			failures[i] = errors.New("the server does not confirm a part (no ETag): run again")
		}
	})
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return p.document(ctx, up.Href, map[string]any{"oid": f.sum, "parts": parts})
}
