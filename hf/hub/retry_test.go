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
			w.Header().Set("Retry-After", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)) // over
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
	if waits, want := s.waits(), []time.Duration{17*time.Second + firstDelay/2, 2 * firstDelay, 4 * firstDelay, 8 * firstDelay}; !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
}

// TestLongRetryAfter: a server that asks for more time than is waited for is not
// asked before that.
func TestLongRetryAfter(t *testing.T) {
	for _, after := range []string{"3600", time.Now().Add(time.Hour + time.Second).UTC().Format(http.TimeFormat), "99999999999999"} {
		s := newServer(t)
		s.faults = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		_, err := s.client().Open(context.Background(), model)
		if err == nil || !strings.Contains(err.Error(), "429 Too Many Requests, and asks to wait ") || !strings.HasSuffix(err.Error(), ": run again then") {
			t.Errorf("Retry-After %s: %v", after, err)
		}
		if n := len(s.requests("hub")); n != 1 {
			t.Errorf("Retry-After %s: %d requests", after, n)
		}
	}
}

// TestJitter: the times between attempts follow the random source, between half of
// the delay and all of it.
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
			t.Fatal("a hub that always fails is opened")
		}
		var want []time.Duration
		for delay := firstDelay; len(want) < attempts-1; delay *= 2 {
			want = append(want, delay/2+time.Duration(random*float64(delay/2)))
		}
		if got := s.waits(); !slices.Equal(got, want) {
			t.Errorf("random %g: waits %v, want %v", random, got, want)
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
	if waits := s.waits(); len(waits) != 2*(attempts-1) || slices.Equal(waits[:attempts-1], waits[attempts-1:]) {
		t.Errorf("two clients wait the same times: %v", waits)
	}
}

// TestProgress: attempts that bring some bytes each count as the first, however many.
func TestProgress(t *testing.T) {
	s := newServer(t)
	s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool {
		if name, ok := strings.CutPrefix(what, "other "); ok {
			s.partly(w, r, s.files[name], firstChunk/(2*attempts+4))
		}
		return false
	}
	open(t, s.client()) // reads the first chunks alone
	waits := s.waits()
	if len(waits) <= 2*attempts {
		t.Errorf("%d attempts only", len(waits))
	}
	for _, w := range waits {
		if w != firstDelay {
			t.Errorf("waits %v", waits)
			break
		}
	}
}

// trusting returns a transport that takes the certificates of test servers.
func trusting() *http.Transport {
	t := transport.Clone()
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a server of this process
	return t
}

// TestUnencryptedRedirect: what begins encrypted stays so.
func TestUnencryptedRedirect(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request is sent unencrypted")
	}))
	defer plain.Close()
	encrypted := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer encrypted.Close()
	c := &Client{Endpoint: encrypted.URL, Cache: t.TempDir(), transport: trusting()}
	_, err := c.Open(context.Background(), model)
	if err == nil || !strings.Contains(err.Error(), "which is not encrypted") {
		t.Errorf("says %v", err)
	}
}

// TestTokenScheme: the token goes to the hub's scheme and host, and not to the same
// host under another scheme.
func TestTokenScheme(t *testing.T) {
	authorized := map[string]string{}
	c := &Client{Endpoint: "http://hub.test", Token: "hf_secret", Cache: t.TempDir()}
	c.transport = roundTripper(func(r *http.Request) *http.Response {
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
		t.Error("a model of no hub is opened")
	}
	if got, sent := authorized["http"], "Bearer "+c.Token; got != sent {
		t.Errorf("the hub gets %q, want %q", got, sent)
	}
	if got, asked := authorized["https"]; got != "" || !asked {
		t.Errorf("the other scheme gets %q (asked: %t)", got, asked)
	}
}

// A roundTripper answers requests itself.
type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
