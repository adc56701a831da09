package conversion

import (
	"fmt"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Budget is the choice between a mixture of formats and one for all, as JSON.
type Budget struct {
	Bits       float64        `json:"bits"` // per weight, at most
	Kept       string         `json:"kept"` // "mixture", or the format
	Format     string         `json:"format"`
	Mixture    BudgetPlan     `json:"mixture"`
	Uniform    BudgetPlan     `json:"uniform"`    // Format for all
	Difference [3]show.Number `json:"difference"` // of the divergences, the first less the second: mean, and 95 % interval
	Windows    int            `json:"windows"`    // 0: the plans are the same
}

// A BudgetPlan is a plan, with its divergence from the original in nats per token.
type BudgetPlan struct {
	Bits float64     `json:"bits"`
	KL   show.Number `json:"kl"`
}

// MixtureKept is Budget.Kept of a mixture.
const MixtureKept = "mixture"

// String describes the choice in one line.
func (b *Budget) String() string {
	if b.Windows == 0 {
		return fmt.Sprintf("budget of %g bits per weight: %s for all (%.4g bits), as nothing is gained by mixing", b.Bits, b.Format,
			b.Uniform.Bits)
	}
	verdict := "the mixture is kept"
	if b.Kept != MixtureKept {
		verdict = fmt.Sprintf("%s for all is kept, as the mixture is not shown to be better", b.Format)
	}
	return fmt.Sprintf("budget of %g bits per weight: a mixture of %.4g bits has divergence %.4g, %s for all (%.4g bits) %.4g; difference "+
		"in %d windows %+.3g [%+.3g, %+.3g]: %s", b.Bits, b.Mixture.Bits, float64(b.Mixture.KL), b.Format, b.Uniform.Bits, float64(b.Uniform.KL),
		b.Windows, float64(b.Difference[0]), float64(b.Difference[1]), float64(b.Difference[2]), verdict)
}
