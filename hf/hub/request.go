package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// attempts is the number of attempts in a row without progress before an error.
const attempts = 6

// firstDelay is the delay after the first failure, before jitter. It doubles with each attempt.
const firstDelay = 500 * time.Millisecond

// longestWait is the longest Retry-After that a client accepts.
const longestWait = 5 * time.Minute

// longestSilence is the maximum time without data before and in a response.
const longestSilence = time.Minute

// A waiter waits for a time, or until ctx ends.
type waiter func(ctx context.Context, d time.Duration) error

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// transport is the default transport. It limits the time to the first byte, not that of a response.
var transport = &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
	TLSHandshakeTimeout:   20 * time.Second,
	ResponseHeaderTimeout: longestSilence,
	ForceAttemptHTTP2:     true,
	MaxIdleConnsPerHost:   16,
	IdleConnTimeout:       60 * time.Second,
	DisableCompression:    true, // ranges count uncompressed bytes
}

// permanent wraps an error that another attempt would not change.
type permanent struct{ error }

func (r permanent) Unwrap() error { return r.error }

// A subjectError is an error that begins with the model or file that it is about.
type subjectError struct {
	subject string
	err     error
}

func (e *subjectError) Error() string { return e.subject + ": " + e.err.Error() }

// Unwrap returns the problem.
func (e *subjectError) Unwrap() error { return e.err }

// retry calls try until it succeeds, returns a permanent error, or makes no progress for the given number of
// attempts. Its error is a *subjectError of what.
func (c *Client) retry(ctx context.Context, what string, try func() (progress bool, err error)) error {
	if err := c.repeat(ctx, try); err != nil {
		return &subjectError{what, err}
	}
	return nil
}

// repeat is retry without the subject. It waits a random time between half the delay and the delay, so that clients do not retry
// at the same time. After a Retry-After it waits for that time and a random part of the delay.
func (c *Client) repeat(ctx context.Context, try func() (progress bool, err error)) error {
	pause, random := c.wait, c.random
	if pause == nil {
		pause = wait
	}
	if random == nil {
		random = rand.Float64
	}
	delay, failed := firstDelay, 0
	for {
		progress, err := try()
		if err == nil {
			return nil
		}
		if r, ok := errors.AsType[permanent](err); ok {
			return r.error
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if progress {
			delay, failed = firstDelay, 0
		}
		if failed++; failed == attempts {
			return fmt.Errorf("%w (%d attempts): check the connection and run again", err, attempts)
		}
		least := delay / 2
		if b, ok := errors.AsType[busy](err); ok && b.after > 0 {
			least = b.after
			if least > longestWait {
				return fmt.Errorf("%w, and requests a wait of %v: run again after that", err, least.Round(time.Second))
			}
		}
		if err := pause(ctx, least+time.Duration(random()*float64(delay/2))); err != nil {
			return err
		}
		delay *= 2
	}
}

// busy is a response after which another attempt may succeed.
type busy struct {
	status string
	after  time.Duration // of Retry-After; 0 without one
}

func (b busy) Error() string { return "the server responded " + b.status }

// send makes one request. It follows redirects, sends the token only to the hub's host, and returns the
// last response, of status 200 or 206, and the headers of the hub's own responses. The caller closes the
// body.
func (c *Client) send(ctx context.Context, address string, header http.Header) (response *http.Response, hub http.Header, err error) {
	home, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, nil, permanent{err}
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, nil, permanent{err}
	}
	hub = http.Header{}
	const maxRedirects = 10
	for range maxRedirects {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, nil, permanent{err}
		}
		for key, values := range header {
			request.Header[key] = values
		}
		ours := at.Scheme == home.Scheme && at.Host == home.Host
		if ours && c.Token != "" {
			request.Header.Set("Authorization", "Bearer "+c.Token)
		}
		request.Header.Set("User-Agent", "microscale")
		response, err := c.roundTrip(ctx, request)
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
			return nil, nil, permanent{fmt.Errorf("%s: redirect without a valid location: %w", at.Redacted(), err)}
		}
		if at.Scheme == "https" && next.Scheme != "https" {
			return nil, nil, permanent{fmt.Errorf("%s: redirect to %s, which is not encrypted: check HF_ENDPOINT", at.Redacted(), next.Host)}
		}
		at = next
	}
	return nil, nil, permanent{fmt.Errorf("%s: more than %d redirects: check HF_ENDPOINT", address, maxRedirects)}
}

// roundTrip returns the response to a request. Reads of its body return a silence after too long a time
// without data.
func (c *Client) roundTrip(ctx context.Context, request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	rounds := c.Transport
	if rounds == nil {
		rounds = transport
	}
	response, err := rounds.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response.Body = &body{response.Body, ctx, cancel, cmp.Or(c.silence, longestSilence)}
	return response, nil
}

// A body ends the connection after too long a time without data.
type body struct {
	io.ReadCloser
	ctx     context.Context // of the request
	cancel  context.CancelCauseFunc
	silence time.Duration
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.silence, func() { b.cancel(silence(b.silence)) })
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if s, ok := errors.AsType[silence](context.Cause(b.ctx)); ok && err != nil && err != io.EOF {
		err = s
	}
	return n, err
}

// Close closes the body and ends the request.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// A silence is the error for a time without data in a response.
type silence time.Duration

func (s silence) Error() string {
	return fmt.Sprintf("the server sent nothing for %v in the middle of a response", time.Duration(s))
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
	switch code := r.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
		return nil
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return busy{r.Status, retryAfter(r.Header.Get("Retry-After"))}
	case !ours && (code == http.StatusUnauthorized || code == http.StatusForbidden):
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
		return permanent{denial{fmt.Sprintf("the hub denies access (%s): accept the model's conditions on its page, and set HF_TOKEN to a "+
			"token with access", r.Status), []error{fs.ErrPermission}}}
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
	return permanent{fmt.Errorf("the server responded %s: %.200q", r.Status, message)}
}

// noSuch returns the error for something that does not exist.
func noSuch(format string, args ...any) error {
	return permanent{denial{fmt.Sprintf(format, args...), []error{fs.ErrNotExist}}}
}

// noAccess returns the error for something that does not exist or is not allowed.
func noAccess(format string, args ...any) error {
	return permanent{denial{fmt.Sprintf(format, args...), []error{fs.ErrNotExist, fs.ErrPermission}}}
}

// expired is the response of another host for a URL that is no longer valid.
type expired struct{ status string }

func (e expired) Error() string { return "the server responded " + e.status }

// retryAfter parses the header Retry-After: seconds, or a date.
func retryAfter(text string) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		d = time.Duration(min(seconds, 1<<30)) * time.Second // no overflow
	} else if date, err := http.ParseTime(text); err == nil {
		d = time.Until(date)
	}
	return max(d, 0)
}
