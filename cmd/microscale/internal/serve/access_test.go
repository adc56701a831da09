package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestAccess sends requests with names, origins and keys, and checks who is admitted.
func TestAccess(t *testing.T) {
	local := start(t, Config{Parallel: 1, Access: Access{Loopback: true, Origins: []string{"https://chat.example"}}})
	open := start(t, Config{Parallel: 1, Access: Access{Origins: []string{"*"}, Keys: []string{"first", "second"}}})
	for _, c := range []struct {
		s                  *testServer
		path, host, origin string
		key                string
		want               int
	}{
		{local, "/v1/models", "", "", "", 200},
		{local, "/v1/models", "localhost", "", "", 200},
		{local, "/v1/models", "LocalHost.:80", "", "", 200},
		{local, "/v1/models", "page.localhost:9", "", "", 200},
		{local, "/v1/models", "127.8.9.1:8080", "", "", 200},
		{local, "/v1/models", "[::1]:8080", "", "", 200},
		{local, "/v1/models", "[::ffff:127.0.0.1]", "", "", 200},
		{local, "/v1/models", "evil.example", "", "", 403},
		{local, "/health", "evil.example:8080", "", "", 403},
		{local, "/v1/models", "localhost.evil.example", "", "", 403},
		{local, "/v1/models", "127.0.0.1.evil.example", "", "", 403},
		{local, "/v1/models", "192.168.0.7", "", "", 403},
		{local, "/v1/models", "0.0.0.0", "", "", 403},
		{local, "/v1/models", "", "http://localhost:3000", "", 200},
		{local, "/v1/models", "", "https://127.0.0.1", "", 200},
		{local, "/v1/models", "", "https://chat.example", "", 200},
		{local, "/v1/models", "", "http://chat.example", "", 403},
		{local, "/v1/models", "", "https://chat.example.evil.example", "", 403},
		{local, "/v1/models", "", "https://evil.example", "", 403},
		{local, "/v1/models", "", "null", "", 403},
		{local, "/v1/models", "", "file://localhost", "", 403},
		{open, "/v1/models", "any.example", "https://evil.example", "Bearer second", 200},
		{open, "/v1/models", "", "", "bearer first", 200},
		{open, "/v1/models", "", "", "Bearer third", 401},
		{open, "/v1/models", "", "", "Bearer fir", 401},
		{open, "/v1/models", "", "", "Basic first", 401},
		{open, "/v1/models", "", "", "first", 401},
		{open, "/v1/models", "", "", "", 401},
		{open, "/health", "", "", "", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.s.url+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if c.host != "" {
			r.Host = c.host
		}
		for name, value := range map[string]string{"Origin": c.origin, "Authorization": c.key} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text := body(t, answer)
		allowed := answer.Header.Get("Access-Control-Allow-Origin")
		if answer.StatusCode != c.want || (allowed == c.origin) != (c.want != 403 || c.origin == "") ||
			(c.want == 401) != (answer.Header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%s of host %q, origin %q, key %q: %d %s, allowed %q, want %d", c.path, c.host, c.origin, c.key, answer.StatusCode, text,
				allowed, c.want)
		}
	}
}

// TestPreflight checks the answers to browsers that ask whether a page may send a request.
func TestPreflight(t *testing.T) {
	s := start(t, Config{Parallel: 1, Access: Access{Loopback: true, Keys: []string{"k"}}})
	for origin, want := range map[string]int{"http://localhost:3000": 204, "https://evil.example": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, s.url+"/v1/chat/completions", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		r.Header.Set("Access-Control-Request-Private-Network", "true")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		h := answer.Header
		got := fmt.Sprint(h.Get("Access-Control-Allow-Origin"), " ", h.Get("Access-Control-Allow-Headers"), " ",
			h.Get("Access-Control-Allow-Private-Network"))
		if text := body(t, answer); answer.StatusCode != want || (want == 204) != (got == origin+" authorization,content-type true") ||
			(want == 204) != strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") {
			t.Errorf("%s: %d %s, %s", origin, answer.StatusCode, got, text)
		}
	}
}

// TestCheckOrigin checks what --allow-origin takes.
func TestCheckOrigin(t *testing.T) {
	for text, want := range map[string]bool{"*": true, "null": true, "https://a.example": true, "http://a.example:8080": true, "": false,
		"a.example": false, "https://a.example/": false, "https://a.example/page": false} {
		if err := CheckOrigin(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestEncoding checks that a compressed request is one clear error.
func TestEncoding(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	for encoding, want := range map[string]int{"gzip": 415, "identity": 200, "": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/completions",
			strings.NewReader(`{"prompt": "x", "max_tokens": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if text := body(t, answer); answer.StatusCode != want || (want == 415) != strings.Contains(text, "Content-Encoding") {
			t.Errorf("%q: %d %s", encoding, answer.StatusCode, text)
		}
	}
}
