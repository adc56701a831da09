package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dial sends the beginning of a request.
func (s *testServer) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // again, for some
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMissingBody sends requests whose bodies never come. Paths that need none answer at once and close the
// connection; the others do when the time to send a request is over.
func TestMissingBody(t *testing.T) {
	s := start(t, Config{Parallel: 1, times: times{read: time.Second / 2}})
	for request, want := range map[string]string{
		"GET /health":          "200",
		"POST /nope":           "404",
		"PUT /v1/completions":  "405",
		"GET /v1/models":       "200",
		"POST /v1/completions": "408",
	} {
		for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			c := s.dial(t, request+" HTTP/1.1\r\nHost: localhost\r\n"+length+"\r\n\r\n")
			text, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 "+want) {
				t.Errorf("%s: got %.40q (%v), want %s and the end of the connection", request, text, err, want)
			}
			if want == "408" && !strings.Contains(string(text), "not received in 500ms") {
				t.Errorf("got %q, want the configured time", text)
			}
		}
	}
	c := s.dial(t, "GET /health HTTP/1.1\r\nHost: x\r\n") // an incomplete header
	if text, err := io.ReadAll(c); err != nil {
		t.Errorf("got %q, %v, want the end of the connection", text, err)
	}
}

// TestHugeBody checks that a request that declares a body of more than the limit is rejected before any of it comes.
func TestHugeBody(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	for length, want := range map[int]string{maxBody + 1: "413", maxBody: ""} {
		c := s.dial(t, fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", length))
		if err := c.SetReadDeadline(time.Now().Add(s.config.times.read / 10)); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); want != "" && (err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 "+want)) || want == "" &&
			err == nil {
			t.Errorf("%d bytes: got %.80q, %v", length, text, err)
		}
	}
}

// TestReuse sends two requests over a connection, the first of which waits for longer than the time to send one.
func TestReuse(t *testing.T) {
	s := start(t, Config{Parallel: 1, Queue: 1, times: times{read: time.Second / 2}})
	ctx, cancel := context.WithCancel(t.Context())
	s.stream(ctx, t, 4000)
	const text = `{"prompt": "x", "max_tokens": 1}`
	c := s.dial(t, fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	time.Sleep(2 * s.config.times.read)
	cancel()
	read := bufio.NewReader(c)
	for range 2 {
		r, err := http.ReadResponse(read, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := body(t, r); r.StatusCode != http.StatusOK || r.Close {
			t.Errorf("%d %s, close %v", r.StatusCode, text, r.Close)
		}
		if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStopBody stops a server with connections that send nothing, a part of a header, a part of a body, and that do
// not read their answer.
func TestStopBody(t *testing.T) {
	s := start(t, Config{Parallel: 1, times: times{write: time.Minute, grace: 100 * time.Millisecond, close: 100 * time.Millisecond}})
	for _, text := range []string{"", "POST /v1/c", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"} {
		s.dial(t, text)
	}
	const request = `{"prompt": "x", "max_tokens": 4000, "stream": true}`
	s.dial(t, fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(request), request))
	for deadline := time.Now().Add(5 * time.Second); len(s.pool.running) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("stopped after %v, want 100 ms for the answers and 100 ms for canceled ones", took)
	}
}

// TestTimes checks the promises about time: a server ends within ten seconds, after most of them for its answers.
func TestTimes(t *testing.T) {
	if end := limits.grace + limits.close; end >= 10*time.Second || limits.grace < 5*time.Second || limits.close < time.Second {
		t.Errorf("a server ends after %v and %v", limits.grace, limits.close)
	}
	if limits.read != 30*time.Second || limits.write != 30*time.Second || limits.idle < time.Minute {
		t.Errorf("got %+v", limits)
	}
}

// TestSlowReader checks that an answer ends when its client does not read it, and that a connection without requests
// is closed.
func TestSlowReader(t *testing.T) {
	s := start(t, Config{Parallel: 1, times: times{write: time.Second / 2, idle: time.Second / 2}})
	const request = `{"prompt": "x", "max_tokens": 4000, "stream": true}`
	c := s.dial(t, "")
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(request),
		request); err != nil {
		t.Fatal(err)
	}
	s.waitRunning(t, 1)
	s.waitRunning(t, 0)
	if text, err := io.ReadAll(c); err == nil && strings.Contains(string(text), "[DONE]") {
		t.Error("the answer was written as a whole")
	}

	c = s.dial(t, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	began := time.Now()
	if text, err := io.ReadAll(c); err != nil || !strings.Contains(string(text), "ok") || time.Since(began) < s.config.times.idle/2 {
		t.Errorf("got %q, %v after %v, want the end of the connection after %v", text, err, time.Since(began), s.config.times.idle)
	}
}

// waitRunning waits until a number of requests run.
func (s *testServer) waitRunning(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); len(s.pool.running) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests run, want %d", len(s.pool.running), n)
		}
	}
}

// TestBudget checks that requests beyond the budget of bytes are rejected, and that their bytes are given back.
func TestBudget(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	s.bodies.free.Store(1000)
	request := `{"prompt": "x", "max_tokens": 1, "user": "` + strings.Repeat("x", 900) + `"}`
	for range 3 {
		if status, text := s.post(t, "/v1/completions", request); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
	c := s.dial(t, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"+request[:500])
	for deadline := time.Now().Add(5 * time.Second); s.bodies.free.Load() > 500 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if status, text := s.post(t, "/v1/completions", request); status != http.StatusServiceUnavailable || !strings.Contains(text,
		`"code":"busy"`) {
		t.Errorf("%d %s", status, text)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); s.bodies.free.Load() < 1000; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are free, want 1000", s.bodies.free.Load())
		}
	}
}

// TestGone checks that a request whose client left while it waited encodes nothing.
func TestGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := newPool(nil, 0)
	p.running = make(chan struct{}, 1)
	cancel()
	for range 100 { // both are possible each time
		if err := p.begin(ctx); !errors.Is(err, context.Canceled) || len(p.running) != 0 {
			t.Fatalf("got %v with %d running", err, len(p.running))
		}
	}
	q := request{Prompt: &prompts{texts: []string{"x"}}}
	if _, err := q.completion(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
