package conversion

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/train"
)

// A distilled is the training of scales as JSON.
type distilled struct {
	Steps   int         `json:"steps"`
	Before  show.Number `json:"kl_before"` // mean divergence of the windows that were held out, in nats per token
	After   show.Number `json:"kl_after"`
	Windows int         `json:"windows"` // that were held out
	Kept    bool        `json:"kept"`    // the trained scales are in the file
	Scales  int         `json:"scales"`  // of blocks
	Changed int         `json:"changed"` // of them
	Seconds show.Number `json:"seconds"`
}

func distilledDocument(d *train.Distilled) *distilled {
	if d == nil {
		return nil
	}
	before, after := d.Mean()
	return &distilled{d.Steps, show.Number(before), show.Number(after), len(d.Before), d.Better(), d.Scales, d.Changed, show.Number(d.Seconds)}
}

// printDistilled prints what the training of scales gained, if there was one.
func printDistilled(w io.Writer, d *train.Distilled) error {
	if d == nil {
		return nil
	}
	before, after := d.Mean()
	outcome := fmt.Sprintf("global scales and norms, where they are trained, and %s of the scales of blocks changed",
		show.Percent(float64(d.Changed)/float64(d.Scales)))
	if !d.Better() {
		outcome = "this is no gain, so the scales are those of before"
	}
	_, err := fmt.Fprintf(w, "distilled in %s, %s: KL %.3g → %.3g nats per token on %s held out; %s\n", show.Counted(d.Steps, "step"),
		show.DurationText(d.Seconds), before, after, show.Counted(len(d.Before), "window"), outcome)
	return err
}
