package hub

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/microscale-go/microscale/internal/ranges"
)

// retries returns how the Client waits between attempts.
func (c *Client) retries() ranges.Retry { return ranges.Retry{Wait: c.wait, Random: c.random} }

// send makes one request. It follows redirects, sends the token only to the hub's host, and returns the
// last response, of status 200 or 206, and the headers of the hub's own responses. The caller closes the
// body.
func (c *Client) send(ctx context.Context, address string, header http.Header) (response *http.Response, hub http.Header, err error) {
	home, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, nil, ranges.Permanent{Err: err}
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, nil, ranges.Permanent{Err: err}
	}
	hub = http.Header{}
	for redirects := 1; ; redirects++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, nil, ranges.Permanent{Err: err}
		}
		for key, values := range header {
			request.Header[key] = values
		}
		ours := at.Scheme == home.Scheme && at.Host == home.Host
		if ours && c.Token != "" {
			request.Header.Set("Authorization", "Bearer "+c.Token)
		}
		request.Header.Set("User-Agent", "microscale")
		response, err := ranges.Transport{Base: c.Transport, Silence: c.silence}.RoundTrip(request)
		if err != nil {
			return nil, nil, err
		}
		if ours {
			for key, values := range response.Header {
				hub[key] = values
			}
		}
		if response.StatusCode < 300 || response.StatusCode >= 400 {
			if err := c.status(response, ours); err != nil {
				done(response)
				return nil, nil, err
			}
			return response, hub, nil
		}
		done(response)
		next, err := response.Location()
		if err != nil {
			return nil, nil, ranges.Permanent{Err: fmt.Errorf("%s: redirect without a valid location: %w", at.Host, err)}
		}
		if err := ranges.Redirect(at, next, redirects, "check HF_ENDPOINT"); err != nil {
			return nil, nil, err
		}
		at = next
	}
}

// done closes a response. Its errors no longer matter.
func done(response *http.Response) { _ = response.Body.Close() }

// A denial is the hub's answer that something does not exist or is not allowed.
type denial struct {
	message string
	causes  []error // of fs.ErrNotExist and fs.ErrPermission; both if the hub does not tell
}

func (d denial) Error() string   { return d.message }
func (d denial) Unwrap() []error { return d.causes }

// status returns the error for the status of a response, or nil.
func (c *Client) status(r *http.Response, ours bool) error {
	code := r.StatusCode
	if code == http.StatusOK || code == http.StatusPartialContent {
		return nil
	}
	if busy, ok := ranges.BusyResponse(r); ok {
		return busy
	}
	if !ours && (code == http.StatusUnauthorized || code == http.StatusForbidden) {
		return expired{r.Status}
	}
	reason := r.Header.Get("X-Error-Code")
	message := strings.TrimSpace(r.Header.Get("X-Error-Message"))
	if message == "" {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 200))
		message = strings.Join(strings.Fields(string(text)), " ")
	}
	switch {
	case reason == "GatedRepo" || r.StatusCode == http.StatusForbidden:
		return ranges.Permanent{Err: denial{fmt.Sprintf("the hub denies access (%s): accept the model's conditions on its page, and set "+
			"HF_TOKEN to a token with access", r.Status), []error{fs.ErrPermission}}}
	case reason == "RevisionNotFound":
		return noSuch("the hub has no such revision: use a branch, a tag or a commit after the @")
	case reason == "EntryNotFound":
		return noSuch("the hub has no such file in that revision")
	case r.StatusCode == http.StatusUnauthorized && c.Token != "":
		return noAccess("the hub does not know the model, or rejects the token (%s): check the name and HF_TOKEN", r.Status)
	case r.StatusCode == http.StatusUnauthorized:
		return noAccess("the hub does not know the model, or it is private (%s): check the name, or set HF_TOKEN", r.Status)
	case reason == "RepoNotFound" || r.StatusCode == http.StatusNotFound:
		return noSuch("the hub does not know it (%s): check the name and the revision", r.Status)
	}
	return ranges.Permanent{Err: fmt.Errorf("the server responded %s: %.200q", r.Status, message)}
}

// noSuch returns the error for something that does not exist.
func noSuch(format string, args ...any) error {
	return ranges.Permanent{Err: denial{fmt.Sprintf(format, args...), []error{fs.ErrNotExist}}}
}

// noAccess returns the error for something that does not exist or is not allowed.
func noAccess(format string, args ...any) error {
	return ranges.Permanent{Err: denial{fmt.Sprintf(format, args...), []error{fs.ErrNotExist, fs.ErrPermission}}}
}

// expired is the response of another host for a URL that is no longer valid.
type expired struct{ status string }

func (e expired) Error() string { return "the server responded " + e.status }
