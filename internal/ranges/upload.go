package ranges

import (
	"context"
	"hash"
	"io"
	"sync"
)

// Hash writes a file to h. Its error is that of ctx once that is done.
func Hash(ctx context.Context, h hash.Hash, file io.ReaderAt, size int64) error {
	const step = 64 << 20 // bytes
	for at := int64(0); at < size; at += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(step, size-at)
		if copied, err := io.Copy(h, io.NewSectionReader(file, at, n)); err != nil || copied < n {
			if err == nil {
				err = io.ErrUnexpectedEOF // it was shortened
			}
			return err
		}
	}
	return nil
}

// A Progress counts the bytes of uploads. It is safe for concurrent use.
type Progress struct {
	Total  int64                   // bytes of all files
	Report func(done, total int64) // is not called by two goroutines at once; nil: nobody asks

	lock sync.Mutex
	done int64
}

// Add counts n bytes more, or fewer if n is negative.
func (p *Progress) Add(n int64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.done += n; p.Report != nil {
		p.Report(p.done, p.Total)
	}
}

// Body returns the body of one attempt to send n bytes of a file from an offset.
func (p *Progress) Body(file io.ReaderAt, off, n int64) *Body {
	return &Body{part: io.NewSectionReader(file, off, n), progress: p}
}

// A Body is the body of a request. Its Progress counts it.
type Body struct {
	part     *io.SectionReader
	progress *Progress

	lock   sync.Mutex
	sent   int64
	failed bool
}

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.part.Read(p)
	b.lock.Lock()
	defer b.lock.Unlock()
	if n > 0 && !b.failed {
		b.sent += int64(n)
		b.progress.Add(int64(n))
	}
	return n, err
}

// Failed takes back what was counted: it must be sent again. A transport may read the body even later.
func (b *Body) Failed() {
	b.lock.Lock()
	defer b.lock.Unlock()
	if !b.failed && b.sent > 0 {
		b.progress.Add(-b.sent)
	}
	b.failed = true
}
