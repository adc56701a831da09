// Package ranges reads files of servers by range requests: in chunks that are cached, repeated from the first
// missing byte after a failure, and compared if they are fetched again.
package ranges

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Attempts is the number of attempts in a row without progress before an error.
const Attempts = 6

// FirstDelay is the delay after the first failure, before jitter. It doubles with each attempt.
const FirstDelay = 500 * time.Millisecond

// LongestWait is the longest Retry-After that a client accepts.
const LongestWait = 5 * time.Minute

// noticed is the wait that is told: a user would take it for a program that hangs.
const noticed = 10 * time.Second

// listener is the key of the function that [Notifying] sets.
type listener struct{}

// Notifying returns a context in which [Notify] calls f. Several goroutines may call it.
func Notifying(ctx context.Context, f func(line string)) context.Context {
	return context.WithValue(ctx, listener{}, f)
}

// Notify tells the user what is no error.
func Notify(ctx context.Context, line string) {
	if f, ok := ctx.Value(listener{}).(func(string)); ok {
		f(line)
	}
}

// A Retry says how to wait between attempts. The zero value waits.
type Retry struct {
	Wait   func(ctx context.Context, d time.Duration) error // waits for a time, or until ctx ends; nil: do so
	Random func() float64                                   // in [0, 1), for the jitter of waits; nil: rand.Float64
}

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

// A Permanent is an error that another attempt would not change.
type Permanent struct{ Err error }

func (r Permanent) Error() string { return r.Err.Error() }

// Unwrap returns the error.
func (r Permanent) Unwrap() error { return r.Err }

// A SubjectError is an error that begins with the file, or the group of files, that it is about.
type SubjectError struct {
	Subject string
	Err     error
}

func (e *SubjectError) Error() string { return e.Subject + ": " + e.Err.Error() }

// Unwrap returns the problem.
func (e *SubjectError) Unwrap() error { return e.Err }

// Busy is a response after which another attempt may succeed.
type Busy struct {
	Status string
	After  time.Duration // of Retry-After; 0 without one
}

func (b Busy) Error() string { return "the server responded " + b.Status }

// Do calls try until it succeeds, returns a [Permanent] error or that of an invalid address, or makes no progress for the given number of
// attempts. Its error is a [*SubjectError] of what, unless try returned one. It notifies of attempts that ended after a time without
// data, and of long waits.
func (r Retry) Do(ctx context.Context, what string, try func() (progress bool, err error)) error {
	return About(what, r.repeat(ctx, what, try))
}

// About returns an error as a [*SubjectError], unless it is one.
func About(subject string, err error) error {
	if _, ok := errors.AsType[*SubjectError](err); ok || err == nil {
		return err
	}
	return &SubjectError{subject, err}
}

// repeat is Do without the subject. It waits a random time between half the delay and the delay, so that clients do not retry
// at the same time. After a Retry-After it waits for that time and a random part of the delay.
func (r Retry) repeat(ctx context.Context, what string, try func() (progress bool, err error)) error {
	pause, random := r.Wait, r.Random
	if pause == nil {
		pause = wait
	}
	if random == nil {
		random = rand.Float64
	}
	delay, failed := FirstDelay, 0
	for {
		progress, err := try()
		if err == nil {
			return nil
		}
		if p, ok := errors.AsType[Permanent](err); ok {
			return p.Err
		}
		if _, ok := errors.AsType[*net.AddrError](err); ok { // such as a port of 99999
			return fmt.Errorf("%w: check the address", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if progress {
			delay, failed = FirstDelay, 0
		}
		if failed++; failed == Attempts {
			return fmt.Errorf("%w (%d attempts): check the connection and run again", err, Attempts)
		}
		least := delay / 2
		if b, ok := errors.AsType[Busy](err); ok && b.After > 0 {
			least = b.After
			if least > LongestWait {
				return fmt.Errorf("%w, and requests a wait of %v: run again after that", err, least.Round(time.Second))
			}
		}
		if t, ok := errors.AsType[interface {
			error
			Timeout() bool
		}](err); ok && t.Timeout() || least >= noticed {
			Notify(ctx, fmt.Sprintf("%v: attempt %d of %d follows", About(what, err), failed+1, Attempts))
		}
		if err := pause(ctx, least+time.Duration(random()*float64(delay/2))); err != nil {
			return err
		}
		delay *= 2
	}
}

// BusyResponse returns a Busy for the status of a response, if another attempt may succeed.
func BusyResponse(r *http.Response) (busy Busy, ok bool) {
	if code := r.StatusCode; code != http.StatusTooManyRequests && code != http.StatusRequestTimeout && code < 500 {
		return busy, false
	}
	return Busy{r.Status, retryAfter(r.Header.Get("Retry-After"))}, true
}

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
