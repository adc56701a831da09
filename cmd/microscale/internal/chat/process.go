package chat

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// ErrRunaway is the error of a template that needs more time or memory than a conversation does.
var ErrRunaway = errors.New("it does not end: it takes more than ten seconds, 512 MiB of memory or 64 MiB of stack for a conversation")

// Limits of one rendering. The largest known templates have 0.1 MB, and take milliseconds and
// megabytes.
const (
	maxTime   = 10 * time.Second
	maxMemory = 512 << 20 // bytes of objects on the heap
	maxStack  = 64 << 20  // bytes: macros that call each other, and values within each other
	maxText   = 64 << 20  // bytes of a rendered conversation
)

// A job is the rendering of conversations.
type job struct {
	Template      string
	Conversations [][]Message
	Options       Options
	Limit         time.Duration // of its process
}

// A result is the texts of a rendering, or why there are none.
type result struct {
	Texts   []string
	Problem string
}

// childArgument is the only argument of a process that renders one job.
const childArgument = "render-chat-template"

// A template can ask for more memory than the machine has by a single multiplication, and can fill
// the stack. Go ends a process for both. So every program that imports this package starts itself
// again to render a template.
func init() {
	if len(os.Args) == 2 && os.Args[1] == childArgument {
		os.Exit(child(os.Stdin, os.Stdout))
	}
}

// Exit statuses of a process that ends itself. Go's runtime uses 2.
const (
	tooMuchMemory = 3
	tooMuchTime   = 4
	orphaned      = 5
)

// child renders one job and returns the exit status of its process. The process ends itself when it exceeds a limit,
// and when its standard input ends: its parent, which would end it, does not exist anymore.
func child(in io.Reader, out io.Writer) (status int) {
	signal.Ignore(os.Interrupt) // a terminal sends it to this process, too, and the parent decides
	debug.SetMaxStack(maxStack)
	go func() {
		for range time.Tick(time.Millisecond) {
			if heapBytes() > maxMemory {
				os.Exit(tooMuchMemory)
			}
		}
	}()
	late := time.AfterFunc(maxTime, func() { os.Exit(tooMuchTime) })
	var j job
	if err := gob.NewDecoder(in).Decode(&j); err != nil {
		return 1
	}
	late.Reset(j.Limit)
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent ends
		os.Exit(orphaned)
	}()
	if err := gob.NewEncoder(out).Encode(j.render()); err != nil {
		return 1
	}
	return 0
}

// heapBytes returns the bytes of objects on the heap.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// failure returns the error of a process that failed: ErrRunaway if it exceeded its time, maxMemory or maxStack,
// or if the system did not have the memory that it asked for.
func failure(exit *exec.ExitError) error {
	if exit.ExitCode() == tooMuchMemory || exit.ExitCode() == tooMuchTime {
		return ErrRunaway
	}
	for _, fatal := range []string{"stack overflow", "out of memory", "cannot allocate memory", "len out of range"} {
		if bytes.Contains(exit.Stderr, []byte(fatal)) {
			return ErrRunaway
		}
	}
	return fmt.Errorf("the process that renders it failed: %w", exit)
}

// slots limits the processes that render at the same time.
var slots = make(chan struct{}, 4)

// run renders the job in a process, and ends it after limit.
func (j job) run(ctx context.Context, limit time.Duration) (r result, err error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return r, ctx.Err()
	}
	var in bytes.Buffer
	j.Limit = limit
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return r, err
	}
	program, err := thisProgram()
	if err != nil {
		return r, fmt.Errorf("start a process that renders it: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, program, childArgument)
	cmd.Args[0] = os.Args[0] // for people who list processes
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	go func() { _, _ = stdin.Write(in.Bytes()) }() // the pipe stays open: its end tells the process that this one ended
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case limited.Err() != nil:
		return r, ErrRunaway
	case errors.As(err, &exit):
		return r, failure(exit)
	case err != nil:
		return r, fmt.Errorf("start a process that renders it: %w", err)
	}
	err = gob.NewDecoder(bytes.NewReader(out)).Decode(&r)
	return r, err
}
