package conversion

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/train"
)

// Conversion is a run of quantize, dequantize or convert.
type Conversion struct {
	Source, Destination string
	Plan                *convert.Plan
	Result              *convert.Result // set when the plan was run
	Seconds             float64
	Uploaded            bool             // to an object store
	Found               bool             // there before the run
	Budget              *Budget          // that the plan comes from; nil: none
	SchemeCost          *SchemeCost      // of 4-bit activations; nil: not measured
	Distilled           *train.Distilled // the training of scales; nil: none, or not in this run

	format, profile, convention, scheme, search string
	count                                       int    // weights
	what                                        string // one line about them
	relabel                                     bool   // codes do not change, or powers of two multiply values, so there are no errors
	repair                                      *lint.RepairDocument
}

// Quantized describes the quantization of src, which follows profile with a search of scales.
func Quantized(src, dst string, plan *convert.Plan, profile string, search quant.Search) *Conversion {
	c := &Conversion{Source: src, Destination: dst, Plan: plan, format: formatsOf(plan), profile: profile, convention: plan.Convention,
		count: plan.Count(convert.Quantize)}
	by := profile
	if method := plan.Method(); method != "" {
		by += ", method " + method
	} else if search != quant.NoSearch {
		c.search = search.String()
		by += ", scale search " + c.search
	}
	done := c.count
	if len(plan.Shares()) > 1 {
		done = 0
		for _, s := range plan.Shares() { // with those that keep their codes
			done += s.Weights
		}
	}
	c.what = fmt.Sprintf("%d of %d weights in %s (%s, %s)", done, plan.Weights(), sharesText(plan), by, plan.Convention)
	if c.format == "" {
		c.what = unquantizedText(plan)
	}
	return c
}

// unquantizedText describes a plan without block formats, such as a GGUF file in BF16.
func unquantizedText(plan *convert.Plan) string {
	return fmt.Sprintf("%s, none in a block format (%s)", show.Counted(plan.Weights(), "weight"), plan.Convention)
}

// formatsOf returns the block formats of a plan.
func formatsOf(plan *convert.Plan) string {
	var names []string
	for _, s := range plan.Shares() {
		names = append(names, s.Format.Name)
	}
	return strings.Join(names, ", ")
}

// sharesText returns the block format of a plan; if there are several, each with its weights and bytes.
func sharesText(plan *convert.Plan) string {
	shares := plan.Shares()
	if len(shares) < 2 {
		return formatsOf(plan)
	}
	var texts []string
	for _, s := range shares {
		texts = append(texts, fmt.Sprintf("%s (%d, %s)", s.Format, s.Weights, show.BytesText(float64(s.Bytes))))
	}
	return strings.Join(texts, ", ")
}

// A shareDocument is the weights of one block format.
type shareDocument struct {
	Format  string `json:"format"`
	Weights int    `json:"weights"`
	Bytes   int64  `json:"bytes"` // in the result, with scales
}

// shareDocuments returns the block formats of a plan; nil unless there are several.
func shareDocuments(plan *convert.Plan) (docs []shareDocument) {
	shares := plan.Shares()
	if len(shares) < 2 {
		return nil
	}
	for _, s := range shares {
		docs = append(docs, shareDocument{s.Format.Name, s.Weights, s.Bytes})
	}
	return docs
}

// Dequantized describes the decoding of src to dtype.
func Dequantized(src, dst string, plan *convert.Plan, dtype string) *Conversion {
	c := &Conversion{Source: src, Destination: dst, Plan: plan, format: strings.ToLower(dtype), count: plan.Count(convert.Decode)}
	c.what = fmt.Sprintf("%d of %d weights decoded to %s", c.count, plan.Weights(), c.format)
	return c
}

// Folded describes the folding of src, of whose layers a number of inputs have factors.
func Folded(src, dst string, plan *convert.Plan, inputs int) *Conversion {
	c := &Conversion{Source: src, Destination: dst, Plan: plan, count: plan.Count(convert.Decode), relabel: true}
	c.what = fmt.Sprintf("%s folded, in %d of %d weights", show.Counted(inputs, "input"), c.count, plan.Weights())
	return c
}

// Repaired describes a copy of src with the changes of a repair.
func Repaired(src, dst string, plan *convert.Plan, repair *lint.Repair) *Conversion {
	c := &Conversion{Source: src, Destination: dst, Plan: plan, relabel: true, repair: repair.Document()}
	c.what = show.Counted(len(repair.Changes), "change") + ", everything else copied"
	return c
}

// Relabeled describes the conversion of src to another convention.
func Relabeled(src, dst string, plan *convert.Plan) *Conversion {
	source := checkpoint.Read(plan.Source())
	c := &Conversion{Source: src, Destination: dst, Plan: plan, format: formatsOf(plan), convention: plan.Convention,
		scheme: plan.Scheme, count: plan.Count(convert.Relabel), relabel: true}
	c.what = fmt.Sprintf("%s of %s relabeled from %s to %s", show.Counted(c.count, "weight"), c.format, source.Convention,
		schemeText(c.convention, c.scheme))
	return c
}

// schemeText returns a convention and its scheme, if that has a name.
func schemeText(convention, scheme string) string {
	return strings.TrimSpace(convention + " " + scheme)
}

// A Document is a conversion as JSON.
type Document struct {
	Source      string               `json:"source"`
	Destination string               `json:"destination"`
	Format      string               `json:"format"`            // if there are several, all of them
	Formats     []shareDocument      `json:"formats,omitempty"` // if there are several
	Profile     string               `json:"profile,omitempty"`
	Convention  string               `json:"convention,omitempty"`
	Scheme      string               `json:"scheme,omitempty"`
	ScaleSearch string               `json:"scale_search,omitempty"`
	Method      string               `json:"method,omitempty"` // of choosing scales and codes by statistics
	Budget      *Budget              `json:"budget,omitempty"`
	SchemeCost  *SchemeCost          `json:"scheme_cost,omitempty"`
	Quantized   int                  `json:"quantized"`
	SourceBytes int64                `json:"source_bytes"`
	Bytes       int64                `json:"bytes"`
	Seconds     float64              `json:"seconds"`
	Resumed     bool                 `json:"resumed,omitempty"`  // an earlier run had done a part
	Finished    bool                 `json:"finished,omitempty"` // an earlier run had done all: the errors are unknown
	Distilled   *distilled           `json:"distilled,omitempty"`
	Repair      *lint.RepairDocument `json:"repair,omitempty"`
	Casts       []castDocument       `json:"casts,omitempty"` // to another block format
	Tensors     []tensorDocument     `json:"tensors"`
	Extra       []string             `json:"extra"`   // safetensors files of the source that were not copied
	Skipped     []skippedDocument    `json:"skipped"` // other files that were not copied
}

func (c *Conversion) document() Document {
	stored, _ := c.Plan.SourceBytes()
	source, results := c.Plan.Source(), c.Result.Tensors
	if c.repair != nil { // which has no errors
		results = nil
	}
	return Document{
		Source: c.Source, Destination: c.Destination, Format: c.format, Formats: shareDocuments(c.Plan), Profile: c.profile,
		Convention: c.convention, Scheme: c.scheme,
		ScaleSearch: c.search, Method: c.Plan.Method(), Budget: c.Budget, SchemeCost: c.SchemeCost,
		Quantized: c.count, SourceBytes: stored, Bytes: c.Plan.Bytes(), Seconds: c.Seconds, Tensors: tensorDocuments(results),
		Distilled: distilledDocument(c.Distilled), Repair: c.repair, Casts: castDocuments(c.Plan),
		Resumed: c.Result.Resumed, Finished: c.Result.Finished, Extra: show.OrEmpty(source.Extra()), Skipped: skippedDocuments(source),
	}
}

// Print prints the errors of the weights and the totals, or a JSON document.
func (c *Conversion) Print(w io.Writer, each, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, c.document())
	}
	src, dst := show.Printable(c.Source), show.Printable(c.Destination)
	results := c.Result.Tensors
	if c.Result.Finished && len(results) == 0 && c.Distilled == nil {
		done := "nothing was done"
		if c.Uploaded {
			done = "the result of an earlier run was uploaded"
		}
		if c.Found {
			done = "it has " + c.what + ", by the records in its files; nothing was done"
		}
		_, err := fmt.Fprintf(w, "%s is complete: %s; for the errors, run microscale verify %s %s\n", dst, done, src, dst)
		return err
	}
	what := c.what
	if index, count, ok := c.Plan.Part(); ok {
		what += fmt.Sprintf("; part of worker %d of %d: to join the parts, run microscale merge %s", index, count, dst)
	}
	if !c.relabel && len(results) > 0 {
		if err := printErrors(w, results, each); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if err := PrintInexact(w, c.Source, c.Destination, c.Plan, each, false); err != nil {
		return err
	}
	stored, _ := c.Plan.SourceBytes()
	if _, err := fmt.Fprintf(w, "%s → %s: %s\n%s → %s in %s, %s/s of source\n", src, dst, what,
		show.BytesText(float64(stored)), show.BytesText(float64(c.Plan.Bytes())), show.DurationText(c.Seconds),
		show.BytesText(float64(stored)/c.Seconds)); err != nil {
		return err
	}
	return errors.Join(c.printBudget(w), printDistilled(w, c.Distilled))
}

// mergeDocument is the result of a merge as JSON.
type mergeDocument struct {
	Destination string           `json:"destination"`
	Finished    bool             `json:"finished,omitempty"` // an earlier merge had done it: the errors are unknown
	Tensors     []tensorDocument `json:"tensors"`
}

// PrintMerge prints the result of a merge to dst.
func PrintMerge(w io.Writer, dst string, r *convert.Result, each, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, mergeDocument{dst, r.Finished, tensorDocuments(r.Tensors)})
	}
	if r.Finished {
		_, err := fmt.Fprintf(w, "%s is complete: nothing was merged\n", show.Printable(dst))
		return err
	}
	if err := printErrors(w, r.Tensors, each); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s is complete: %s\n", show.Printable(dst), show.Counted(len(r.Tensors), "weight"))
	return err
}
