package flags

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/train"
)

// WarnBusy warns that other programs disturbed a measurement.
func WarnBusy(w io.Writer, what string) {
	fmt.Fprintf(w, "microscale: warning: other programs used the processors during most %s; an idle machine is faster\n", what)
}

// A TrainMeter prints the progress of a training run: a bar on a terminal, otherwise a
// line every meterInterval.
type TrainMeter struct {
	out   io.Writer
	what  string // the recipe
	bar   progress.Writer
	task  *progress.Tracker
	ended chan struct{}

	tokens     int // of the finished steps, and their time
	elapsed    time.Duration
	line       time.Time // of the last line
	validation string    // for the next line
}

// stepUnits is the number of units of a step in the bar.
const stepUnits = 1000

// NewTrainMeter starts a meter for a run of steps. The caller closes it.
func NewTrainMeter(out io.Writer, what string, steps int) *TrainMeter {
	m := &TrainMeter{out: out, what: what, line: time.Now()}
	if !show.IsTerminal(out) {
		return m
	}
	m.bar = show.NewBar(out)
	m.task = &progress.Tracker{
		Message: what, Total: int64(steps)*stepUnits + 1, // one more, so that only Close completes it
		Units: progress.Units{Formatter: func(v int64) string { return fmt.Sprintf("step %d of %d", v/stepUnits, steps) }},
	}
	m.bar.AppendTracker(m.task)
	m.ended = make(chan struct{})
	go func() {
		m.bar.Render()
		close(m.ended)
	}()
	return m
}

// Report reports an event.
func (m *TrainMeter) Report(e train.Event) {
	switch e.Kind {
	case train.Step:
		m.step(e)
	case train.Validation:
		m.validation = fmt.Sprintf(" (%.3f in validation)", e.Loss)
		if m.bar != nil {
			m.bar.Log("step %d: validation loss %.3f", e.Step, e.Loss)
		}
	}
}

func (m *TrainMeter) step(e train.Event) {
	m.tokens += e.Tokens
	m.elapsed += e.Elapsed
	rate := float64(m.tokens) / m.elapsed.Seconds()
	left := float64(e.Steps-e.Step) * float64(e.Tokens) / rate
	if m.task != nil {
		m.task.SetValue(int64(e.Step) * stepUnits)
		m.task.UpdateMessage(fmt.Sprintf("%s: loss %.3f, %s", m.what, e.Loss, TokenRate(rate)))
		return
	}
	if now := time.Now(); now.Sub(m.line) >= show.Interval && e.Step < e.Steps {
		m.line = now
		fmt.Fprintf(m.out, "%s: step %d of %d, loss %.3f%s, %s, %s left\n", m.what, e.Step, e.Steps, e.Loss, m.validation, TokenRate(rate),
			show.DurationText(left))
	}
}

// Close ends the meter.
func (m *TrainMeter) Close() {
	if m.task == nil {
		return
	}
	if m.task.Value() >= m.task.Total-1 {
		m.task.MarkAsDone()
	} else {
		m.task.MarkAsErrored()
	}
	<-m.ended
}

// TokenRate returns tokens per second as text.
func TokenRate(perSecond float64) string {
	return show.UnitText(perSecond, "", " k", " M") + " tokens/s"
}
