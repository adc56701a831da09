package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

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

// upload sends the objects that the hub lacks. It asks for the addresses of each just before it sends it: they expire.
func (p *pusher) upload(ctx context.Context, files []*File) error {
	progress := ranges.Progress{Report: p.Progress}
	for _, f := range files {
		progress.Total += f.Size
	}
	for _, f := range files {
		err := f.digest(ctx)
		if err == nil {
			err = p.ensure(ctx, f, &progress)
		}
		if err != nil {
			if e, ok := errors.AsType[*ranges.SubjectError](err); ok { // of the repository
				err = e.Err
			}
			return &ranges.SubjectError{Subject: p.repository.String() + "/" + f.Name, Err: err}
		}
	}
	return nil
}

// ensure sends an object unless the hub has it.
func (p *pusher) ensure(ctx context.Context, f *File, progress *ranges.Progress) error {
	o, err := p.ask(ctx, f)
	switch {
	case err != nil:
		return err
	case o.Error != nil:
		return fmt.Errorf("the hub rejects the object: %.200q (%d)", o.Error.Message, o.Error.Code)
	case o.Actions.Upload == nil:
		progress.Add(f.Size)
		return nil
	}
	f.Sent = true
	return p.object(ctx, f, o, progress)
}

// ask asks where to send an object.
func (p *pusher) ask(ctx context.Context, f *File) (o object, err error) {
	body, err := json.Marshal(map[string]any{"operation": "upload", "transfers": []string{"basic", "multipart"},
		"objects": []map[string]any{{"oid": f.sum, "size": f.Size}}, "hash_algo": "sha256",
		"ref": map[string]string{"name": p.repository.Revision}})
	if err != nil {
		return o, err
	}
	var answer struct{ Objects []object }
	err = p.send(ctx, request{method: "POST", address: p.client.Endpoint + "/" + p.repository.Owner + "/" + p.repository.Name +
		".git/info/lfs/objects/batch", kind: lfsKind, header: map[string]string{"Accept": lfsKind}, body: strings.NewReader(string(body)),
		size: int64(len(body))}, &answer)
	if err == nil && (len(answer.Objects) != 1 || answer.Objects[0].OID != f.sum) {
		err = errors.New("the hub does not answer for the object: check HF_ENDPOINT")
	}
	if err != nil {
		return o, err
	}
	return answer.Objects[0], nil
}

// object sends an object: whole, or in parts.
func (p *pusher) object(ctx context.Context, f *File, o object, progress *ranges.Progress) error {
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
		err = p.send(ctx, request{method: "PUT", address: up.Href, header: header, body: content, size: f.Size, progress: progress}, nil)
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
func (p *pusher) parts(ctx context.Context, f *File, up *action, chunk string, content io.ReaderAt, progress *ranges.Progress) error {
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
			progress: progress}, &header)
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
