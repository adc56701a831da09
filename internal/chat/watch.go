package chat

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"time"
)

// ErrRunaway is the error of a template that takes too much time or memory. It cannot be stopped, so
// the caller must end the process soon.
var ErrRunaway = errors.New("it does not end: it takes more than ten seconds or 512 MiB of memory for a conversation")

// Limits of templates. The largest known ones have 0.1 MB, and take milliseconds and megabytes.
const (
	maxTemplate = 1 << 20          // bytes
	maxNesting  = 200              // brackets within each other: the library parses them by recursion
	maxText     = 64 << 20         // bytes of a rendered conversation
	maxTime     = 10 * time.Second // of rendering
	maxGrowth   = 512 << 20        // bytes of the heap while rendering, beside garbage
)

// watch runs render and returns its result, or ErrRunaway. A panic of the library is an error.
func watch(render func() (string, error)) (text string, err error) {
	type result struct {
		text string
		err  error
	}
	ended := make(chan result, 1)
	allowed := 2*heapBytes() + maxGrowth // twice, because that is when garbage is collected
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- result{err: fmt.Errorf("%v", p)}
			}
		}()
		text, err := render()
		ended <- result{text, err}
	}()
	late := time.After(maxTime)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case r := <-ended:
			return r.text, r.err
		case <-late:
			return "", ErrRunaway
		case <-look.C:
			if heapBytes() > allowed {
				return "", ErrRunaway
			}
		}
	}
}

// heapBytes returns the bytes of objects on the heap.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// checkSize returns an error for a template that the library may not be able to parse.
func checkSize(template string) error {
	if n := len(template); n > maxTemplate {
		return fmt.Errorf("it has %d bytes, want at most %d", n, maxTemplate)
	}
	depth := 0
	for i := range len(template) {
		switch {
		case strings.IndexByte("([{", template[i]) >= 0:
			depth++
		case strings.IndexByte(")]}", template[i]) >= 0:
			depth = max(0, depth-1)
		}
		if depth > maxNesting {
			return fmt.Errorf("it has more than %d brackets within each other", maxNesting)
		}
	}
	return nil
}
