package flags

import (
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/train"
)

// TestTrainMeter checks the lines of a run without a terminal, and that a finished run
// prints none.
func TestTrainMeter(t *testing.T) {
	var out strings.Builder
	m := NewTrainMeter(&out, "mxfp8", 40)
	event := train.Event{Kind: train.Step, Step: 10, Steps: 40, Loss: 3.25, Tokens: 1024, Elapsed: time.Second}
	m.Report(event)
	m.Report(train.Event{Kind: train.Validation, Step: 10, Steps: 40, Loss: 3.5})
	m.line = m.line.Add(-show.Interval)
	event.Step = 20
	m.Report(event)
	m.line = m.line.Add(-show.Interval)
	event.Step = 40
	m.Report(event)
	m.Close()
	if want := "mxfp8: step 20 of 40, loss 3.250 (3.500 in validation), 1.02 k tokens/s, 20 s left\n"; out.String() != want {
		t.Errorf("it prints %q, want %q", out.String(), want)
	}
}
