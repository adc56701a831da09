package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// attempts is how often a request is made that does not get further.
const attempts = 6

// firstDelay is the time from the first failure to the next attempt, before jitter.
// It doubles with each attempt.
const firstDelay = 500 * time.Millisecond

// longestWait is the longest Retry-After that is waited for.
const longestWait = 5 * time.Minute

// longestSilence is how long a server may send nothing in the middle of an answer:
// as long as it may take to begin one.
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

// transport gives up on servers that say nothing; a body that comes slowly is
// waited for, as long as it comes.
var transport = &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
	TLSHandshakeTimeout:   20 * time.Second,
	ResponseHeaderTimeout: longestSilence,
	ForceAttemptHTTP2:     true,
	MaxIdleConnsPerHost:   16,
	IdleConnTimeout:       60 * time.Second,
	DisableCompression:    true, // a range is of the bytes as they are
}

// A refusal is an answer that another attempt would not change.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// retry calls try until it succeeds, it returns a refusal, or attempts calls in a row
// made no progress. It waits between half of the delay and all of it, at random, so
// that clients that failed together do not return together. After a Retry-After it
// waits as long as the server asks, and a random part of the delay.
func (c *Client) retry(ctx context.Context, what string, try func() (progress bool, err error)) error {
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
		if r, ok := errors.AsType[refusal](err); ok {
			return r.error
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if progress {
			delay, failed = firstDelay, 0
		}
		if failed++; failed == attempts {
			return fmt.Errorf("%s: %w (%d attempts): check the connection and run again", what, err, attempts)
		}
		least := delay / 2
		if b, ok := errors.AsType[busy](err); ok && b.after > 0 {
			least = b.after
			if least > longestWait {
				return fmt.Errorf("%s: %w, and asks to wait %v: run again then", what, err, least.Round(time.Second))
			}
		}
		if err := pause(ctx, least+time.Duration(random()*float64(delay/2))); err != nil {
			return err
		}
		delay *= 2
	}
}

// busy is an answer that asks for another attempt.
type busy struct {
	status string
	after  time.Duration // 0 where it does not say
}

func (b busy) Error() string { return "the server says " + b.status }

// send makes one request. It follows redirections itself, to send the token to the
// hub's host alone, and returns the last response, whose status is 200 or 206,
// with the headers of the hub's own answers. The caller closes its body.
func (c *Client) send(ctx context.Context, address string, header http.Header) (response *http.Response, hub http.Header, err error) {
	home, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, nil, refusal{err}
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, nil, refusal{err}
	}
	hub = http.Header{}
	const most = 10
	for range most {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, nil, refusal{err}
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
			return nil, nil, refusal{fmt.Errorf("%s: redirected to nowhere: %w", at.Redacted(), err)}
		}
		if at.Scheme == "https" && next.Scheme != "https" {
			return nil, nil, refusal{fmt.Errorf("%s: redirected to %s, which is not encrypted: check HF_ENDPOINT", at.Redacted(), next.Host)}
		}
		at = next
	}
	return nil, nil, refusal{fmt.Errorf("%s: redirected %d times: check HF_ENDPOINT", address, most)}
}

// roundTrip returns the answer to a request. Its body fails with a silence where
// nothing comes for too long.
func (c *Client) roundTrip(ctx context.Context, request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	rounds := c.transport
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

// A body ends the connection where a read gets nothing for too long.
type body struct {
	io.ReadCloser
	ctx     context.Context // of the request
	cancel  context.CancelCauseFunc
	silence time.Duration
}

// Read reads as [io.Reader] does.
func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.silence, func() { b.cancel(silence(b.silence)) })
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if s, ok := errors.AsType[silence](context.Cause(b.ctx)); ok && err != nil && err != io.EOF {
		err = s
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// A silence is a time in which a server sent nothing in the middle of an answer.
type silence time.Duration

func (s silence) Error() string {
	return fmt.Sprintf("the server stopped in the middle and sent nothing for %v", time.Duration(s))
}

// done gives a response back; what is wrong with its end does not matter any more.
func done(response *http.Response) { _ = response.Body.Close() }

// status returns what is wrong with an answer.
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
		return refusal{fmt.Errorf("the hub does not give access (%s): accept the model's conditions on its page, and set HF_TOKEN to a token that may read it", r.Status)}
	case reason == "RevisionNotFound":
		return refusal{errors.New("the hub has no such revision: name a branch, a tag or a commit after the @")}
	case reason == "EntryNotFound":
		return refusal{errors.New("the hub has no such file in that revision")}
	case r.StatusCode == http.StatusUnauthorized && c.Token != "":
		return refusal{fmt.Errorf("the hub does not know the model, or does not take the token (%s): check the name and HF_TOKEN", r.Status)}
	case r.StatusCode == http.StatusUnauthorized:
		return refusal{fmt.Errorf("the hub does not know the model, or it is private (%s): check the name, or set HF_TOKEN", r.Status)}
	case reason == "RepoNotFound" || r.StatusCode == http.StatusNotFound:
		return refusal{fmt.Errorf("the hub does not know it (%s): check the name and the revision", r.Status)}
	}
	return refusal{fmt.Errorf("the server says %s: %.200q", r.Status, message)}
}

// expired is the answer of another host, whose addresses hold for some time.
type expired struct{ status string }

func (e expired) Error() string { return "the server says " + e.status }

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(text string) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		d = time.Duration(min(seconds, 1<<30)) * time.Second // no overflow
	} else if date, err := http.ParseTime(text); err == nil {
		d = time.Until(date)
	}
	return max(d, 0)
}
