package summary

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/quant"
)

// SchemeText returns a convention and its scheme, where it has a name.
func SchemeText(convention, scheme string) string {
	if scheme == "" {
		return convention
	}
	return convention + " " + scheme
}

// SearchText names a search of scales; "" where there is none.
func SearchText(s quant.Search) string {
	if s == quant.NoSearch {
		return ""
	}
	return s.String()
}

// ConversionDocument is what quantize and dequantize did, as JSON.
type ConversionDocument struct {
	Source      string            `json:"source"`
	Destination string            `json:"destination"`
	Format      string            `json:"format"`
	Profile     string            `json:"profile,omitempty"`
	Convention  string            `json:"convention,omitempty"`
	Scheme      string            `json:"scheme,omitempty"`
	ScaleSearch string            `json:"scale_search,omitempty"`
	Quantized   int               `json:"quantized"`
	SourceBytes int64             `json:"source_bytes"`
	Bytes       int64             `json:"bytes"`
	Seconds     float64           `json:"seconds"`
	Resumed     bool              `json:"resumed,omitempty"`  // an earlier run had done a part of it
	Finished    bool              `json:"finished,omitempty"` // an earlier run had done all of it: the errors are not known
	Tensors     []TensorDocument  `json:"tensors"`
	Extra       []string          `json:"extra"`   // safetensors files of the source that were not carried over
	Skipped     []SkippedDocument `json:"skipped"` // other files that were not
}

// PrintConversion prints what quantize and dequantize did: the table of errors
// and the lines below it.
func PrintConversion(w io.Writer, plan *convert.Plan, args []string, result *convert.Result, each bool, what string, seconds float64) error {
	if result.Finished && len(result.Tensors) == 0 {
		_, err := fmt.Fprintf(w, "%s is whole already: nothing was done (microscale verify %s %s has the errors)\n", cli.Printable(args[1]), cli.Printable(args[0]), cli.Printable(args[1]))
		return err
	}
	if index, count, ok := plan.Part(); ok {
		what += fmt.Sprintf("; this is the part of worker %d of %d, and microscale merge %s joins them", index, count, cli.Printable(args[1]))
	}
	results := result.Tensors
	if err := PrintErrors(w, results, each); err != nil {
		return err
	}
	stored, _ := plan.SourceBytes()
	if _, err := fmt.Fprintf(w, "\n%s → %s: %s\n%s → %s in %s, %s/s of source\n", cli.Printable(args[0]), cli.Printable(args[1]), what,
		cli.BytesText(float64(stored)), cli.BytesText(float64(plan.Bytes())), cli.DurationText(seconds), cli.BytesText(float64(stored)/seconds)); err != nil {
		return err
	}
	return printSourceNonFinite(w, results, args[0])
}
