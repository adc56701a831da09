package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// An Access says who may use a server. The zero value admits clients without a key, and pages of the same machine.
type Access struct {
	Loopback bool     // only names and addresses of the loopback interface may be in Host: other names were resolved by a foreign server
	Origins  []string // pages that may use the server beside those of this machine, as scheme://host:port; "*": all
	Keys     []string // secrets of clients, sent as "Authorization: Bearer KEY"; none: no key is needed
}

// CheckOrigin returns an error unless a text is an origin of Access.Origins.
func CheckOrigin(text string) error {
	u, err := url.Parse(text)
	if text == "*" || text == "null" || err == nil && u.Scheme != "" && u.Host != "" && u.Scheme+"://"+u.Host == text {
		return nil
	}
	return fmt.Errorf("got %q, want scheme://host:port, such as https://chat.example, or *", text)
}

// guard passes a request on to next if its client may use the server, and answers it otherwise.
func (a *Access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // unless the whole body is read: net/http would wait for it before it answers
		}
		if a.Loopback && !isLoopback(r.Host) {
			writeError(w, forbidden("%.100q is not a name of this machine: use 127.0.0.1 or localhost", r.Host))
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			w.Header().Add("Vary", "Origin")
			if !a.admitsOrigin(origin) {
				writeError(w, forbidden("pages of %.100q may not use this server: start it with --allow-origin", origin))
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				allowPage(w, r)
				return
			}
		}
		if strings.HasPrefix(r.URL.Path, "/v1/") && !a.admitsKey(r.Header.Get("Authorization")) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, &apiError{status: http.StatusUnauthorized, Message: "this server needs a key: send Authorization: Bearer KEY",
				Code: "invalid_api_key"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func forbidden(format string, args ...any) *apiError {
	return &apiError{status: http.StatusForbidden, Message: fmt.Sprintf(format, args...)}
}

// isLoopback reports whether the value of a Host header, or the host of an origin, is this machine. HTTP/1.0 has no
// such header.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if address, err := netip.ParseAddr(name); err == nil {
		return address.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// admitsOrigin reports whether pages of an origin may use the server.
func (a *Access) admitsOrigin(origin string) bool {
	if slices.Contains(a.Origins, "*") || slices.Contains(a.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && isLoopback(u.Host)
}

// allowPage answers a browser that asks whether a page may send a request.
func allowPage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// admitsKey reports whether an Authorization header has one of the keys. The time that it takes does not depend on
// how much of a key is right.
func (a *Access) admitsKey(header string) bool {
	if len(a.Keys) == 0 {
		return true
	}
	scheme, key, _ := strings.Cut(header, " ")
	got, found := sha256.Sum256([]byte(strings.TrimSpace(key))), 0
	for _, k := range a.Keys {
		want := sha256.Sum256([]byte(k))
		found |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return strings.EqualFold(scheme, "Bearer") && found == 1
}
