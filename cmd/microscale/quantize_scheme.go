package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// schemeSuffix is in the name of the directory beside a destination with the hidden states from which schemeCost measures.
const schemeSuffix = windows.OwnName + "scheme"

// schemeCost measures on a text, with one layer in memory, what the 4-bit activations of a plan cost, and prints it. It returns nil if the
// plan has none, or none is about to be written. Without a text, or where it cannot be measured, one line says how to.
func schemeCost(cmd *cobra.Command, args []string, text string, limit *calibrationText, plan *convert.Plan, o convert.QuantizeOptions,
	f *runFlags) (*conversion.SchemeCost, error) {
	if len(evaluation.LowInputs(plan)) == 0 || plan.Admit(args[1], f.options.Force) != nil || text != "" && *f.dryRun {
		return nil, nil
	}
	later := fmt.Sprintf("microscale eval %s --text FILE --reference %s --activations", show.Printable(args[1]), show.Printable(args[0]))
	if text == "" {
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "note: what 4-bit activations cost is not measured without a text; afterwards: %s\n", later)
		return nil, err
	}
	s := evaluation.Scheme{Following: evaluation.Following{Formats: map[string]string{}, Quantizers: map[string]quant.Quantizer{}},
		Inputs: evaluation.QuantizedInputs(plan)}
	for _, q := range o.Quantizers() {
		s.Quantizers[q.Format.Name] = q
	}
	var formats []string
	for _, share := range plan.Shares() {
		formats = append(formats, share.Format.Name)
	}
	for d := range plan.Decisions() {
		if _, ok := s.Quantizers[d.Format]; ok && d.Action == convert.Quantize {
			s.Following.Formats[d.Module+".weight"] = d.Format
		}
	}
	s.Model, s.Text, s.Stream, s.Threads, s.Memory, s.Stderr = args[0], text, args[1]+schemeSuffix, int(*f.threads), int64(*limit.memory),
		cmd.ErrOrStderr()
	flags.BoundGarbage()
	var err error
	if s.Method, err = windows.LookupMethod("all"); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(s.Stream); err != nil { // of a killed run: measuring is short, and repeated
		return nil, err
	}
	cost, err := s.Measure(cmd.Context())
	_ = os.RemoveAll(s.Stream) // left by an error
	if cmd.Context().Err() != nil {
		return nil, err
	} else if err != nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "note: what 4-bit activations cost is not measured: %v; afterwards: %s\n", err, later)
		return nil, err
	}
	numbers := func(p evaluation.Paired) [3]show.Number {
		return [3]show.Number{show.Number(p.Mean), show.Number(p.Low), show.Number(p.High)}
	}
	c := &conversion.SchemeCost{Scheme: strings.TrimSpace(plan.Convention + " " + plan.Scheme), Formats: strings.Join(formats, ", "),
		Weights: numbers(cost.Weights), Activations: numbers(cost.Activations), Tokens: cost.Tokens, Windows: cost.Windows, Text: text}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), c)
	return c, err
}
