package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/microscale-go/microscale/internal/ranges"
)

// A request is one to the hub, or to a server that it names.
type request struct {
	method, address string
	kind            string            // Content-Type
	header          map[string]string // further headers
	body            io.ReaderAt       // nil: none
	size            int64             // of the body
	progress        *ranges.Progress  // counts the body; nil: nobody does
}

// api sends a JSON document to a path of the hub's API, and decodes the answer.
func (p *pusher) api(ctx context.Context, method, path string, document, answer any) error {
	r := request{method: method, address: p.client.Endpoint + path}
	if document != nil {
		data, err := json.Marshal(document)
		if err != nil {
			return err
		}
		r.kind, r.body, r.size = "application/json", bytes.NewReader(data), int64(len(data))
	}
	return p.send(ctx, r, answer)
}

// largest is the size of the largest answer in bytes.
const largest = 64 << 20

// send sends a request until it succeeds, and decodes the answer. answer is a pointer to a value, to an http.Header, or
// nil.
func (p *pusher) send(ctx context.Context, r request, answer any) error {
	if r.progress == nil {
		r.progress = &ranges.Progress{}
	}
	return p.retry.Do(ctx, p.repository.String(), func() (_ bool, err error) {
		body := r.progress.Body(r.body, 0, r.size)
		defer func() {
			if err != nil {
				body.Failed()
			}
		}()
		response, err := p.once(ctx, r, body)
		if err != nil {
			return false, err
		}
		defer func() { _ = response.Body.Close() }() // its errors no longer matter
		if err := p.status(response, p.isHub(r.address)); err != nil {
			return false, err
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, largest+1))
		if err != nil {
			return false, err
		}
		switch answer := answer.(type) {
		case nil:
		case *http.Header:
			*answer = response.Header
		default:
			if err := json.Unmarshal(text, answer); err != nil || len(text) > largest {
				return false, ranges.Permanent{Err: fmt.Errorf("%s does not have the hub's API: check HF_ENDPOINT", p.client.Endpoint)}
			}
		}
		return true, nil
	})
}

// isHub reports whether an address is one of the hub.
func (p *pusher) isHub(address string) bool {
	home, err := url.Parse(p.client.Endpoint)
	at, addressErr := url.Parse(address)
	return err == nil && addressErr == nil && at.Scheme == home.Scheme && at.Host == home.Host
}

// once sends a request once. The token goes only to the hub.
func (p *pusher) once(ctx context.Context, r request, body *ranges.Body) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, r.method, r.address, nil)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the address may contain a signature
		}
		return nil, ranges.Permanent{Err: fmt.Errorf("the hub names an address that is none: %w", err)}
	}
	if r.size > 0 {
		q.Body, q.ContentLength = io.NopCloser(body), r.size
	}
	for key, value := range r.header {
		q.Header.Set(key, value)
	}
	if r.kind != "" {
		q.Header.Set("Content-Type", r.kind)
	}
	q.Header.Set("User-Agent", "microscale")
	if p.isHub(r.address) {
		q.Header.Set("Authorization", "Bearer "+p.client.Token)
	} else if strings.HasPrefix(p.client.Endpoint, "https:") && q.URL.Scheme != "https" {
		return nil, ranges.Permanent{Err: fmt.Errorf("the hub names %s, which is not encrypted: check HF_ENDPOINT", q.URL.Host)}
	}
	return ranges.Transport{Base: p.client.Transport}.RoundTrip(q)
}

// status returns the error for the status of a response, or nil. byHub: it is of the hub, not of a server that it names.
func (p *pusher) status(r *http.Response, byHub bool) error {
	if r.StatusCode >= 200 && r.StatusCode < 300 {
		return nil
	}
	if busy, ok := ranges.BusyResponse(r); ok {
		return busy
	}
	message := r.Header.Get("X-Error-Message")
	if message == "" {
		var document struct{ Error string }
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		if json.Unmarshal(text, &document) == nil {
			message = document.Error
		}
	}
	if message = strings.Join(strings.Fields(message), " "); message != "" {
		message = fmt.Sprintf(" (%.200q)", message)
	}
	switch r.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		if !byHub {
			return ranges.Permanent{Err: fmt.Errorf("%w: the server that the hub names responded %s%s: its address expired, or a proxy rejects it; "+
				"run again", fs.ErrPermission, r.Status, message)}
		}
		return ranges.Permanent{Err: fmt.Errorf("%w: the server responded %s%s: set HF_TOKEN to a token that may write there", fs.ErrPermission,
			r.Status, message)}
	case http.StatusNotFound:
		return ranges.Permanent{Err: fmt.Errorf("%w: the server responded %s%s: check the name", fs.ErrNotExist, r.Status, message)}
	case http.StatusConflict, http.StatusPreconditionFailed:
		return ranges.Permanent{Err: fmt.Errorf("%w: the server responded %s%s: another push was faster; run again", fs.ErrExist, r.Status,
			message)}
	}
	return ranges.Permanent{Err: fmt.Errorf("the server responded %s%s", r.Status, message)}
}
