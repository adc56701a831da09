package show

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMeterLine(t *testing.T) {
	for _, tc := range []struct {
		done, total int64
		elapsed     time.Duration
		want        string
	}{
		{1_200_000_000, 4_800_000_000, 3 * time.Second, "quantizing: 1.20 GB of 4.80 GB (25%), 400 MB/s, 9 s left"},
		{0, 100, time.Second, "quantizing: 0 B of 100 B (0%), 0 B/s"},
		{100, 100, time.Second, "quantizing: 100 B of 100 B (100%), 100 B/s"},
		{0, 0, time.Second, "quantizing: 0 B of 0 B (0%), 0 B/s"},
	} {
		if got := meterLine("quantizing", tc.done, tc.total, tc.elapsed); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// TestMeterLines adds from several goroutines while lines are printed.
func TestMeterLines(t *testing.T) {
	var out bytes.Buffer
	m := &Meter{what: "quantizing", start: time.Now(), out: &out, stop: make(chan struct{})}
	m.total.Store(8000)
	m.startLines(time.Millisecond)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 10 {
				m.Add(100)
				m.Logf("a remark")
				time.Sleep(time.Millisecond)
			}
		})
	}
	wait.Wait()
	m.Close()
	if m.done.Load() != 8000 {
		t.Errorf("%d bytes done, want 8000", m.done.Load())
	}
	report := regexp.MustCompile(`^quantizing: .* of 8\.00 kB \(\d+%\), .*/s(, .+ left)?$`)
	reports, remarks := 0, 0
	for _, l := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		switch {
		case l == "a remark":
			remarks++
		case report.MatchString(l):
			reports++
		default:
			t.Errorf("a line %q", l)
		}
	}
	if remarks != 80 || reports == 0 {
		t.Errorf("%d remarks and %d reports, want 80 and some", remarks, reports)
	}
}

// TestMeterQuick checks that a job that ends before the first line prints nothing.
func TestMeterQuick(t *testing.T) {
	var out bytes.Buffer
	m := NewMeter(&out, "quantizing", 10)
	m.Add(10)
	m.Close()
	if out.Len() > 0 {
		t.Errorf("it left %q", out.String())
	}
}

func TestStepLine(t *testing.T) {
	for _, tc := range []struct {
		done int64
		want string
	}{{0, "evaluating: 0%"}, {25, "evaluating: 25%, 30 s left"}, {100, "evaluating: 100%"}} {
		if got := stepLine("evaluating", tc.done, 100, 10*time.Second); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestMeterNote checks that the lines of a meter end with its note.
func TestMeterNote(t *testing.T) {
	lines := make(chan string, 1)
	m := &Meter{what: "evaluating", steps: true, out: lineWriter(lines), start: time.Now(), stop: make(chan struct{})}
	m.total.Store(4)
	m.Add(1)
	m.Note("1.2 GB of memory")
	m.startLines(time.Millisecond)
	line := <-lines
	m.Close()
	if !strings.HasPrefix(line, "evaluating: 25%, ") || !strings.HasSuffix(line, " left, 1.2 GB of memory\n") {
		t.Errorf("got %q", line)
	}
}

// A lineWriter keeps the first line.
type lineWriter chan<- string

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(p):
	default:
	}
	return len(p), nil
}
