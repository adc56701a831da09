package ranges

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// longestAnswer is the maximum time without data in a request and before its response: a store may put uploaded parts together first.
	longestAnswer = time.Minute
	// longestSilence is the maximum time without data in a response. After its headers the data are ready: what remains is a connection
	// that loses packets, which TCP repeats after 1, 2, 4, 8 and 16 seconds at the latest.
	longestSilence = 30 * time.Second
)

// transport limits the time to the first byte, not that of a response.
var transport = &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
	TLSHandshakeTimeout:   20 * time.Second,
	ResponseHeaderTimeout: longestAnswer,
	ForceAttemptHTTP2:     true,
	MaxIdleConnsPerHost:   16,
	IdleConnTimeout:       60 * time.Second,
	DisableCompression:    true, // ranges count uncompressed bytes
}

// A Transport makes requests, and gives up on servers that do not answer, or send nothing in the middle of a
// response, or take nothing in the middle of a request. The zero value uses the proxy of the environment.
type Transport struct {
	Base    http.RoundTripper // nil: shared by all Transports
	Silence time.Duration     // maximum time without data in a request or response; 0: a minute, in a response 30 s
}

// RoundTrip implements [http.RoundTripper]. Reads of the body return an error after too long a time without
// data.
func (t Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	request = request.WithContext(ctx)
	longest := cmp.Or(t.Silence, longestAnswer)
	if request.Body != nil && request.Body != http.NoBody {
		timer := time.AfterFunc(longest, func() { cancel(errStuck) })
		defer timer.Stop()
		request.Body = &sending{request.Body, timer, longest}
	}
	response, err := cmp.Or[http.RoundTripper](t.Base, transport).RoundTrip(request)
	if err != nil {
		if context.Cause(ctx) == errStuck { //nolint:errorlint // it is not wrapped
			err = errStuck
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &body{response.Body, ctx, cancel, cmp.Or(t.Silence, longestSilence)}
	return response, nil
}

// errStuck is the error for a server that takes no more of a request.
var errStuck error = stuck{}

type stuck struct{}

func (stuck) Error() string { return "the server stopped taking data in the middle of a request" }

// Timeout tells that the error is a time without data.
func (stuck) Timeout() bool { return true }

// A sending is the body of a request. Its timer ends the request if the server takes nothing more of it for too long.
type sending struct {
	io.ReadCloser
	timer   *time.Timer
	longest time.Duration
}

// Read implements [io.Reader].
func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.timer.Reset(s.longest); err != nil {
		s.timer.Stop() // reading the answer has another limit
	}
	return n, err
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

// Timeout tells that the error is a time without data.
func (silence) Timeout() bool { return true }

// Redirect returns an error if a request must not follow a redirect, the count-th in a row. remedy ends the
// error, which has no query of an address: it may be a signature.
func Redirect(from, to *url.URL, count int, remedy string) error {
	const most = 10
	switch {
	case count > most:
		return Permanent{fmt.Errorf("more than %d redirects, the last to %s: %s", most, to.Host, remedy)}
	case from.Scheme == "https" && to.Scheme != "https":
		return Permanent{fmt.Errorf("redirect to %s, which is not encrypted: %s", to.Host, remedy)}
	}
	return nil
}
