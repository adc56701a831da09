package show

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// A Meter prints the progress of a job in bytes or steps: a bar on a terminal, otherwise a line
// every Interval.
type Meter struct {
	what  string
	steps bool // the job is counted in steps, not in bytes
	total atomic.Int64
	start time.Time
	done  atomic.Int64
	note  atomic.Pointer[string]

	out  io.Writer
	bar  progress.Writer // nil without a terminal
	task *progress.Tracker

	lock sync.Mutex // of out, without a bar
	stop chan struct{}
	wait sync.WaitGroup
}

// Interval is the time between the lines of a meter without a terminal.
const Interval = 5 * time.Second

// NewMeter starts a meter for a job of total bytes, named by a verb such as
// "quantizing". The caller closes it.
func NewMeter(out io.Writer, what string, total int64) *Meter {
	return newMeter(&Meter{what: what, out: out}, total)
}

// NewStepMeter starts a meter for a job of total steps of equal length.
func NewStepMeter(out io.Writer, what string, total int) *Meter {
	return newMeter(&Meter{what: what, steps: true, out: out}, int64(total))
}

func newMeter(m *Meter, total int64) *Meter {
	m.start, m.stop = time.Now(), make(chan struct{})
	m.total.Store(total)
	if IsTerminal(m.out) {
		m.startBar()
	} else {
		m.startLines(Interval)
	}
	return m
}

// Add reports n more bytes or steps. It is safe for concurrent use.
func (m *Meter) Add(n int64) {
	m.done.Add(n)
	if m.task != nil {
		m.task.Increment(n)
	}
}

// Report reports the finished and all bytes or steps of a job whose size may change. It is safe for concurrent use.
func (m *Meter) Report(done, total int64) {
	m.total.Store(total)
	if m.task != nil {
		m.task.UpdateTotal(total + 1)
	}
	if n := done - m.done.Swap(done); m.task != nil {
		m.task.Increment(n)
	}
}

// Note sets a text that the meter shows after its figures. It is safe for concurrent use.
func (m *Meter) Note(text string) {
	m.note.Store(&text)
	if m.task != nil {
		m.task.UpdateMessage(m.what + ": " + text)
	}
}

// Logf prints a line above the bar.
func (m *Meter) Logf(format string, args ...any) {
	if m.bar != nil {
		m.bar.Log(format, args...)
		return
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	fmt.Fprintf(m.out, format+"\n", args...)
}

// Close ends the meter and waits for its output.
func (m *Meter) Close() {
	if m.task != nil {
		if m.done.Load() >= m.total.Load() {
			m.task.MarkAsDone()
		} else {
			m.task.MarkAsErrored()
		}
	}
	close(m.stop)
	m.wait.Wait()
}

func (m *Meter) startBar() {
	m.bar = NewBar(m.out)
	m.task = &progress.Tracker{Message: m.what, Total: m.total.Load() + 1} // one more, so that only Close completes it
	if !m.steps {
		m.bar.Style().Visibility.Speed = true
		m.task.Units = progress.UnitsBytes
	}
	m.bar.AppendTracker(m.task)
	m.wait.Go(m.bar.Render)
}

// NewBar returns a progress bar in the style of all commands.
func NewBar(out io.Writer) progress.Writer {
	bar := progress.NewWriter()
	bar.SetOutputWriter(out)
	bar.SetUpdateFrequency(100 * time.Millisecond)
	bar.SetTrackerLength(24)
	bar.SetTrackerPosition(progress.PositionRight)
	bar.SetAutoStop(true) // even if the task ends before the first frame
	style := bar.Style()
	style.Chars = progress.StyleCharsBlocks
	style.Visibility.ETA = true
	style.Visibility.TrackerOverall = false
	style.Options.PercentFormat = "%3.0f%%"
	style.Options.ETAPrecision = time.Second
	style.Options.TimeInProgressPrecision = time.Second
	style.Options.TimeDonePrecision = 100 * time.Millisecond
	style.Options.ETAString = "left"
	return bar
}

func (m *Meter) startLines(interval time.Duration) {
	ticker := time.NewTicker(interval)
	m.wait.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-ticker.C:
				line := meterLine
				if m.steps {
					line = stepLine
				}
				text := line(m.what, m.done.Load(), m.total.Load(), time.Since(m.start))
				if note := m.note.Load(); note != nil {
					text += ", " + *note
				}
				m.Logf("%s", text)
			}
		}
	})
}

// meterLine returns a line such as
// "quantizing: 1.2 GB of 4.8 GB (25%), 400 MB/s, 9 s left".
func meterLine(what string, done, total int64, elapsed time.Duration) string {
	rate := float64(done) / elapsed.Seconds()
	line := fmt.Sprintf("%s: %s of %s (%d%%), %s/s", what, BytesText(float64(done)), BytesText(float64(total)), 100*done/max(total, 1),
		BytesText(rate))
	if done > 0 && done < total {
		line += fmt.Sprintf(", %s left", DurationText(float64(total-done)/rate))
	}
	return line
}

// stepLine returns a line such as "evaluating: 25%, 9 s left".
func stepLine(what string, done, total int64, elapsed time.Duration) string {
	line := fmt.Sprintf("%s: %d%%", what, 100*done/max(total, 1))
	if done > 0 && done < total {
		line += fmt.Sprintf(", %s left", DurationText(elapsed.Seconds()*float64(total-done)/float64(done)))
	}
	return line
}
