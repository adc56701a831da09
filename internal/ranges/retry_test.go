package ranges

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestSilence reads from a server that sends headers and then nothing, once and always: the user is told of each attempt, and the
// last one is an error.
func TestSilence(t *testing.T) {
	const silence = 50 * time.Millisecond
	var stalls, requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		w.WriteHeader(http.StatusPartialContent)
		if requests.Add(1) <= stalls.Load() {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "data")
	}))
	t.Cleanup(server.Close)
	for _, n := range []int64{1, Attempts} {
		stalls.Store(n)
		requests.Store(0)
		var lines []string
		ctx := Notifying(t.Context(), func(line string) { lines = append(lines, line) })
		f := &File{Context: ctx, Name: "x.gguf", Size: 4, Retry: Retry{Wait: func(context.Context, time.Duration) error { return nil }}}
		f.Request = func(p []byte, _ int64) (int, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				return 0, err
			}
			response, err := Transport{Silence: silence}.RoundTrip(request)
			if err != nil {
				return 0, err
			}
			defer func() { _ = response.Body.Close() }()
			return io.ReadFull(response.Body, p)
		}
		data, err := f.fetch(0)
		const stalled = "x.gguf: the server sent nothing for 50ms in the middle of a response"
		var want []string
		for i := range min(n, Attempts-1) {
			want = append(want, fmt.Sprintf("%s: attempt %d of %d follows", stalled, i+2, Attempts))
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%d stalls: got lines %q, want %q", n, lines, want)
		}
		if n < Attempts && (err != nil || string(data) != "data") || n == Attempts && (err == nil || !strings.HasPrefix(err.Error(),
			stalled+" (6 attempts): check the connection")) {
			t.Errorf("%d stalls: got %q, %v", n, data, err)
		}
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := Transport{}.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if b, ok := response.Body.(*body); !ok || b.silence != longestSilence {
		t.Errorf("without a limit given: %+v", response.Body)
	}
}

// TestLongWait checks that the user is told why a program waits, and not of every connection that ends.
func TestLongWait(t *testing.T) {
	for err, want := range map[error]int{Busy{"503 Service Unavailable", 20 * time.Second}: 1, Busy{"503 Service Unavailable", time.Second}: 0,
		io.ErrUnexpectedEOF: 0} {
		var lines []string
		ctx := Notifying(t.Context(), func(line string) { lines = append(lines, line) })
		failures := 1
		r := Retry{Wait: func(context.Context, time.Duration) error { return nil }}
		if got := r.Do(ctx, "x", func() (bool, error) {
			if failures--; failures < 0 {
				return true, nil
			}
			return false, err
		}); got != nil || len(lines) != want {
			t.Errorf("%v: got %v, lines %q", err, got, lines)
		}
	}
}
