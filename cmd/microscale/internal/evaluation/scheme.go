package evaluation

import (
	"context"
	"fmt"
	"maps"
	"math"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// A Scheme measures what quantized activations cost: the divergence of a model with quantized weights from the original, with activations
// as they are and with quantized ones. Codes are the nearest and activations have scales for each token, so that neither follows from a
// text.
type Scheme struct {
	Evaluation                   // of Model on Text, in which Stream is set
	Following                    // Formats by weight, and their quantizers
	Inputs     map[string]string // the formats to which clients quantize the inputs of modules
}

// LowInputs returns the formats of inputs that clients quantize to four bits or fewer, by module: the errors of more bits are too small to
// make up for.
func LowInputs(plan *convert.Plan) map[string]string {
	formats := QuantizedInputs(plan)
	maps.DeleteFunc(formats, func(_, name string) bool {
		f, err := quant.Lookup(name)
		return err != nil || f.Element.Bits() > 4 || f.Block.Rows != 1
	})
	return formats
}

// QuantizedInputs returns the formats to which clients quantize inputs, by module.
func QuantizedInputs(plan *convert.Plan) map[string]string {
	formats := map[string]string{}
	for d := range plan.Decisions() {
		if d.Inputs.Element != nil {
			formats[d.Module] = d.Inputs.Name
		}
	}
	return formats
}

// A Scheme reads at most schemeWindows windows of budgetContext tokens, spread over the text.
const schemeWindows = 8

// A SchemeCost is the divergence from the original in nats per token, with 95 % intervals that are NaN for one window.
type SchemeCost struct {
	Weights, Activations Paired // of weights alone, and with quantized activations
	Tokens, Windows      int    // scored
}

// Measure reads the windows.
func (s Scheme) Measure(ctx context.Context) (c SchemeCost, err error) {
	b := &Budget{Quantizers: s.Quantizers, Codes: calibration.Nearest, Groups: groupsOf(s.Following.Formats)}
	e := s.Evaluation
	e.Method.Context = budgetContext
	e.what = fmt.Sprintf("scheme: %v, %v, inputs %v", b.Groups, b.Quantizers, s.Inputs)
	for _, g := range b.Groups {
		f := b.Quantizers[g.Options[0].Format].Format
		e.Formats = append(e.Formats, f, f) // of both variants
	}
	var sizes []int
	e.pick = func(all []windows.Window) (part []windows.Window) {
		n := min(len(all), schemeWindows)
		sizes = nil
		for i := range n {
			part = append(part, all[i*len(all)/n])
			sizes = append(sizes, part[i].Scored())
		}
		return part
	}
	e.variants = func(model *stack) ([]windows.Stack, error) {
		if err := b.find(model); err != nil {
			return nil, err
		}
		format := func(group int) string { return b.Groups[group].Options[0].Format }
		weights := variant{stack: model, budget: b, format: format, method: b.Codes}
		low := weights
		low.inputs = func(linear string) (quant.Format, bool) {
			f, err := quant.Lookup(s.Inputs[b.linears[linear].Modules[0]])
			return f, err == nil
		}
		return []windows.Stack{&weights, &low}, nil
	}
	r, err := e.Run(ctx)
	if err != nil {
		return c, err
	}
	var means [2]Paired
	for i, one := range r.result.Comparisons {
		list := windowReceipts(one, sizes)
		if len(list) == 1 {
			means[i] = Paired{list[0].KL, math.NaN(), math.NaN()}
			continue
		}
		means[i] = paired(list, make([]WindowReceipt, len(list)), func(w WindowReceipt) float64 { return w.KL })
	}
	c = SchemeCost{Weights: means[0], Activations: means[1], Windows: len(sizes)}
	for _, n := range sizes {
		c.Tokens += n
	}
	return c, nil
}
