package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/internal/ranges"
)

// Parts that one object is sent in: at most 10,000 are permitted.
const (
	smallestPart = 16 << 20 // bytes
	mostSent     = 9_000
	partsAtOnce  = 4
)

// A sending is an object to upload.
type sending struct {
	key      string
	file     io.ReaderAt
	size     int64
	part     int64  // bytes of its parts
	sum      string // CRC-64, which its metadata get
	replace  bool   // it may replace an object
	progress *ranges.Progress
}

// send uploads an object: in parts, if the store takes them. It is an error that wraps [fs.ErrExist] if another run has
// written the object, unless it has the same content.
func (s *s3) send(ctx context.Context, u sending) error {
	send := s.sendParts
	if s.whole || u.size <= u.part {
		send = s.sendWhole
	}
	err := send(ctx, u)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.Is(err, errChanged) && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if same, _ := s.has(ctx, u.key, u.size, u.sum); same { // the answer to an earlier attempt was lost
		return nil
	}
	if errors.Is(err, errChanged) {
		return fmt.Errorf("%w since this run began: another run writes to the same DST", fs.ErrExist)
	}
	return err
}

// condition returns options with the condition of an upload.
func (u sending) condition() (o minio.PutObjectOptions) {
	if !u.replace {
		o.SetMatchETagExcept("*")
	}
	return o
}

// options returns the options of an upload.
func (u sending) options() minio.PutObjectOptions {
	o := u.condition()
	o.UserMetadata = map[string]string{sumKey: u.sum}
	return o
}

// attempt sends n bytes of the file from an offset until that succeeds.
func (s *s3) attempt(ctx context.Context, u sending, off, n int64, f func(body io.Reader) error) error {
	return s.try(ctx, s.object(u.key), func() error {
		body := u.progress.Body(u.file, off, n)
		err := f(body)
		if err != nil {
			body.Failed()
			return s.failed(err)
		}
		return nil
	})
}

// sendWhole uploads an object with one request.
func (s *s3) sendWhole(ctx context.Context, u sending) error {
	return s.attempt(ctx, u, 0, u.size, func(body io.Reader) error {
		_, err := s.core.PutObject(ctx, s.bucket, u.key, body, u.size, "", "", u.options())
		return err
	})
}

// sendParts uploads an object in parts. The store checks the condition when the upload is completed.
func (s *s3) sendParts(ctx context.Context, u sending) (err error) {
	var id string
	err = s.attempt(ctx, u, 0, 0, func(io.Reader) (err error) {
		id, err = s.core.NewMultipartUpload(ctx, s.bucket, u.key, u.options())
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // else its parts cost money
			const patience = 10 * time.Second
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			_ = s.core.AbortMultipartUpload(after, s.bucket, u.key, id)
		}
	}()
	parts := make([]minio.CompletePart, (u.size+u.part-1)/u.part)
	sending, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	parallel.Each(len(parts), partsAtOnce, func(i int) {
		off := int64(i) * u.part
		n := min(u.part, u.size-off)
		err := sending.Err()
		if err == nil {
			err = s.attempt(sending, u, off, n, func(body io.Reader) error {
				part, err := s.core.PutObjectPart(sending, s.bucket, u.key, id, i+1, body, n, minio.PutObjectPartOptions{})
				parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: part.ETag}
				return err
			})
		}
		if err != nil {
			fail(err)
		}
	})
	if sending.Err() != nil {
		return context.Cause(sending)
	}
	return s.attempt(ctx, u, 0, 0, func(io.Reader) error {
		_, err := s.core.CompleteMultipartUpload(ctx, s.bucket, u.key, id, parts, u.condition())
		return err
	})
}

// has reports whether the store has an object with a size and a CRC-64.
func (s *s3) has(ctx context.Context, key string, size int64, sum string) (same bool, err error) {
	err = s.try(ctx, s.object(key), func() error {
		info, err := s.core.Client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
		if err != nil {
			return s.failed(err)
		}
		same = info.Size == size && info.UserMetadata[sumKey] == sum
		return nil
	})
	return same, err
}
