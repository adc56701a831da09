package hub

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/ranges"
)

func TestBusy(t *testing.T) {
	s := newServer(t)
	var asked atomic.Int64
	s.faults = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		switch asked.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.Header().Set("Retry-After", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)) // in the past
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			w.WriteHeader(http.StatusBadGateway)
		case 4:
			w.WriteHeader(http.StatusRequestTimeout)
		default:
			return false
		}
		return true
	}
	open(t, s.client())
	if waits, want := s.waits(), []time.Duration{17*time.Second + ranges.FirstDelay/2, 2 * ranges.FirstDelay, 4 * ranges.FirstDelay,
		8 * ranges.FirstDelay}; !slices.Equal(waits, want) {
		t.Errorf("got waits %v, want %v", waits, want)
	}
}

// TestLongRetryAfter checks that a Retry-After longer than the limit is an error, without another
// request.
func TestLongRetryAfter(t *testing.T) {
	for _, after := range []string{"3600", time.Now().Add(time.Hour + time.Second).UTC().Format(http.TimeFormat), "99999999999999"} {
		s := newServer(t)
		s.faults = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		_, err := s.client().Open(context.Background(), model)
		if err == nil || !strings.Contains(err.Error(), "429 Too Many Requests, and requests a wait of ") || !strings.HasSuffix(err.Error(),
			": run again after that") {
			t.Errorf("Retry-After %s: got %v", after, err)
		}
		if n := len(s.requests("hub")); n != 1 {
			t.Errorf("Retry-After %s: got %d requests, want 1", after, n)
		}
	}
}

// TestJitter checks that waits follow the random source, between half of the delay and the delay.
func TestJitter(t *testing.T) {
	for _, random := range []float64{0, 0.25, 0.999} {
		s := newServer(t)
		s.faults = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		c := s.client()
		c.random = func() float64 { return random }
		if _, err := c.Open(context.Background(), model); err == nil {
			t.Fatal("a hub that always fails: got no error")
		}
		var want []time.Duration
		for delay := ranges.FirstDelay; len(want) < ranges.Attempts-1; delay *= 2 {
			want = append(want, delay/2+time.Duration(random*float64(delay/2)))
		}
		if got := s.waits(); !slices.Equal(got, want) {
			t.Errorf("random %g: got waits %v, want %v", random, got, want)
		}
	}
	s := newServer(t)
	s.faults = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	c := s.client()
	c.random = nil
	for range 2 {
		_, _ = c.Open(context.Background(), model) // it fails
	}
	if waits := s.waits(); len(waits) != 2*(ranges.Attempts-1) || slices.Equal(waits[:ranges.Attempts-1], waits[ranges.Attempts-1:]) {
		t.Errorf("two clients: got equal waits %v", waits)
	}
}

// TestProgress checks that an attempt with progress counts as the first, any number of times.
func TestProgress(t *testing.T) {
	s := newServer(t)
	s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool {
		if name, ok := strings.CutPrefix(what, "other "); ok {
			s.partly(w, r, s.files[name], ranges.FirstChunk/(2*ranges.Attempts+4))
		}
		return false
	}
	open(t, s.client()) // reads only the first chunks
	waits := s.waits()
	if len(waits) <= 2*ranges.Attempts {
		t.Errorf("got %d waits, want more than the attempts", len(waits))
	}
	for _, w := range waits {
		if w != ranges.FirstDelay {
			t.Errorf("got waits %v", waits)
			break
		}
	}
}

// trusting returns a transport that accepts the certificates of test servers.
func trusting() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a server of this process
}

// TestUnencryptedRedirect checks that an encrypted connection is not redirected to an unencrypted one.
func TestUnencryptedRedirect(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("got an unencrypted request")
	}))
	defer plain.Close()
	encrypted := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer encrypted.Close()
	c := &Client{Endpoint: encrypted.URL, Cache: t.TempDir(), Transport: trusting()}
	_, err := c.Open(context.Background(), model)
	if err == nil || !strings.Contains(err.Error(), "which is not encrypted") {
		t.Errorf("got %v", err)
	}
}

// TestTokenScheme checks that the token is sent to the hub's scheme and host, but not to the same host
// with another scheme.
func TestTokenScheme(t *testing.T) {
	authorized := map[string]string{}
	c := &Client{Endpoint: "http://hub.test", Token: "hf_secret", Cache: t.TempDir()}
	c.Transport = roundTripper(func(r *http.Request) *http.Response {
		authorized[r.URL.Scheme] = r.Header.Get("Authorization")
		answer := httptest.NewRecorder()
		if r.URL.Scheme == "http" {
			http.Redirect(answer, r, "https://hub.test"+r.URL.Path, http.StatusFound)
		} else {
			answer.WriteHeader(http.StatusNotFound)
		}
		response := answer.Result()
		response.Request = r
		return response
	})
	if _, err := c.Open(context.Background(), model); err == nil {
		t.Error("no such model: got no error")
	}
	if got, sent := authorized["http"], "Bearer "+c.Token; got != sent {
		t.Errorf("token for the hub: got %q, want %q", got, sent)
	}
	if got, asked := authorized["https"]; got != "" || !asked {
		t.Errorf("token for the other scheme: got %q (requested: %t)", got, asked)
	}
}

// A roundTripper answers requests without a network.
type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
