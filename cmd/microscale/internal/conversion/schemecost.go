package conversion

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A SchemeCost is the divergence from the original of nearest codes, without and with quantized activations, as JSON.
type SchemeCost struct {
	Scheme      string         `json:"scheme"`  // with its convention
	Formats     string         `json:"formats"` // of the weights
	Weights     [3]show.Number `json:"weights"` // alone: mean KL in nats per token, and 95 % interval, null for one window
	Activations [3]show.Number `json:"activations"`
	Tokens      int            `json:"tokens"` // scored
	Windows     int            `json:"windows"`
	Text        string         `json:"text"`
}

// String describes the cost in one line.
func (c *SchemeCost) String() string {
	return fmt.Sprintf("%s, weights alone: KL %s; with 4-bit activations (%s): %s nats per token (%s of the calibration text %s in %s; "+
		"nearest codes and scales of activations for each token, which do not depend on it)", c.Formats, interval(c.Weights), c.Scheme,
		interval(c.Activations), show.Counted(c.Tokens, "token"), show.Printable(c.Text), show.Counted(c.Windows, "window"))
}

// interval describes a mean and the half of its interval.
func interval(v [3]show.Number) string {
	if half := float64(v[2] - v[0]); !math.IsNaN(half) {
		return fmt.Sprintf("%.4f ± %.4f", float64(v[0]), half)
	}
	return fmt.Sprintf("%.4f", float64(v[0]))
}
