package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/microscale-go/microscale/train"
)

// A trainMeter tells on standard error how far a training run has come: a bar on
// a terminal, about ten lines elsewhere.
type trainMeter struct {
	out   io.Writer
	what  string // the recipe
	bar   progress.Writer
	task  *progress.Tracker
	ended chan struct{}

	tokens  int // of the steps seen, and their time
	elapsed time.Duration
	every   int // steps from one line to the next
}

// newTrainMeter starts to report a run of steps. It must be closed.
func newTrainMeter(out io.Writer, what string, steps int) *trainMeter {
	m := &trainMeter{out: out, what: what, every: max(1, (steps+9)/10)}
	if !isTerminal(out) {
		return m
	}
	m.bar = newBar(out)
	m.task = &progress.Tracker{Message: what, Total: int64(steps) + 1} // one more: only Close ends it
	m.bar.AppendTracker(m.task)
	m.ended = make(chan struct{})
	go func() {
		m.bar.Render()
		close(m.ended)
	}()
	return m
}

// Step reports a step that is done.
func (m *trainMeter) Step(e train.StepEvent) {
	m.tokens += e.Tokens
	m.elapsed += e.Elapsed
	rate := float64(m.tokens) / m.elapsed.Seconds()
	left := float64(e.Steps-e.Step) * float64(e.Tokens) / rate
	if m.task != nil {
		m.task.SetValue(int64(e.Step))
		m.task.UpdateMessage(fmt.Sprintf("%s: loss %.3f, %s", m.what, e.Loss, tokenRate(rate)))
		return
	}
	if e.Step%m.every == 0 || e.Step == e.Steps {
		line := fmt.Sprintf("%s: step %d of %d, loss %.3f, %s", m.what, e.Step, e.Steps, e.Loss, tokenRate(rate))
		if e.Step < e.Steps {
			line += fmt.Sprintf(", %s left", durationText(left))
		}
		m.log(line)
	}
}

// Validated reports a validation.
func (m *trainMeter) Validated(p train.ValidationPoint) {
	m.log(fmt.Sprintf("%s: step %d, validation loss %.3f", m.what, p.Step, p.Loss))
}

func (m *trainMeter) log(line string) {
	if m.bar != nil {
		m.bar.Log("%s", line)
		return
	}
	fmt.Fprintln(m.out, line)
}

// Close ends the report.
func (m *trainMeter) Close() {
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

// tokenRate words tokens per second.
func tokenRate(perSecond float64) string {
	return unitText(perSecond, "", " k", " M") + " tokens/s"
}
