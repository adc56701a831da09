package ranges

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestStuck checks that a request ends if the server accepts a connection and reads nothing.
func TestStuck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	body := bytes.NewReader(make([]byte, 64<<20)) // more than the buffers of connections
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+l.Addr().String(), body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := Transport{Silence: 100 * time.Millisecond}.RoundTrip(request)
	if !errors.Is(err, errStuck) {
		t.Errorf("got %v", err)
	}
	if err == nil {
		_ = response.Body.Close()
	}
}

// TestProgress checks that a failed attempt does not count, also if its body is read later.
func TestProgress(t *testing.T) {
	last := int64(0)
	p := Progress{Total: 20, Report: func(done, _ int64) { last = done }}
	p.Add(5)
	file := bytes.NewReader(make([]byte, 10))
	first, second := p.Body(file, 2, 6), p.Body(file, 2, 6)
	if _, err := io.CopyN(io.Discard, first, 3); err != nil || last != 5+3 {
		t.Errorf("got %d, %v", last, err)
	}
	first.Failed()
	first.Failed()
	if _, err := io.Copy(io.Discard, first); err != nil || last != 5 {
		t.Errorf("got %d, %v", last, err)
	}
	if n, err := io.Copy(io.Discard, second); err != nil || n != 6 || last != 5+6 {
		t.Errorf("got %d, %d, %v", n, last, err)
	}
}

// TestHash checks hashes, and their errors.
func TestHash(t *testing.T) {
	data := []byte("content")
	h := sha256.New()
	if err := Hash(t.Context(), h, bytes.NewReader(data), int64(len(data))); err != nil || [32]byte(h.Sum(nil)) != sha256.Sum256(data) {
		t.Errorf("got %x, %v", h.Sum(nil), err)
	}
	if err := Hash(t.Context(), h, bytes.NewReader(data), int64(len(data))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that was shortened: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Hash(ctx, h, bytes.NewReader(data), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
