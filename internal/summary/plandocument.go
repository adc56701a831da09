package summary

import (
	"encoding/json"
	"strings"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/safetensors"
)

// A PlanDocument is a plan as JSON.
type PlanDocument struct {
	Source      string             `json:"source"`
	Destination string             `json:"destination"`
	Format      string             `json:"format,omitempty"`
	Convention  string             `json:"convention,omitempty"`
	Scheme      string             `json:"scheme,omitempty"`
	SourceBytes int64              `json:"source_bytes"`
	Bytes       int64              `json:"bytes"`
	Worker      *int               `json:"worker,omitempty"` // of several: bytes are this one's, all else is of the whole result
	Ignore      []string           `json:"ignore"`
	Notes       []string           `json:"notes,omitempty"`
	Extra       []string           `json:"extra"`
	Skipped     []SkippedDocument  `json:"skipped"`
	Files       []plannedDocument  `json:"files"`
	Companions  []fileDocument     `json:"companions"`       // files that are not of weights
	Config      json.RawMessage    `json:"config,omitempty"` // NaN and infinities as zeros
	Index       json.RawMessage    `json:"index,omitempty"`
	Tensors     []decisionDocument `json:"tensors"`
}

// A plannedDocument is a file of weights that is to be written.
type plannedDocument struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes"`
	HeaderBytes int64  `json:"header_bytes"` // before the data
	Worker      *int   `json:"worker,omitempty"`
}

// A fileDocument is a file.
type fileDocument struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// A decisionDocument is what becomes of a weight.
type decisionDocument struct {
	Name     string           `json:"name"`
	Shape    []int64          `json:"shape"`
	Quantize bool             `json:"quantize"`
	Becomes  string           `json:"becomes"`
	Reason   string           `json:"reason,omitempty"` // why it is not quantized
	File     string           `json:"file"`
	Stored   []storedDocument `json:"stored"`
	Bytes    int64            `json:"bytes"`
}

// A storedDocument is a tensor of the result, or the part of it that an expert has.
type storedDocument struct {
	Name   string  `json:"name"`
	Dtype  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // in the file
	Bytes  int64   `json:"bytes"`
}

// NewPlanDocument returns a plan as JSON.
func NewPlanDocument(plan *convert.Plan, args []string) PlanDocument {
	stored, _ := plan.SourceBytes()
	doc := PlanDocument{Source: args[0], Destination: args[1], Format: plan.Format.Name,
		SourceBytes: stored, Bytes: plan.Bytes(), Ignore: plan.Ignore, Notes: plan.Notes,
		Extra: cli.OrEmpty(plan.Source.Source.Extra()), Skipped: SkippedDocuments(plan.Source.Source),
		Companions: []fileDocument{}, Config: configjson.Standard(plan.Config()), Index: plan.Index()}
	if plan.Convention != nil {
		doc.Convention = plan.Convention.Name
		doc.Scheme, _ = plan.Convention.Scheme(plan.Format)
	}
	index, _, parted := plan.Part()
	if parted {
		doc.Worker = &index
	}
	for _, f := range plan.Files {
		file := plannedDocument{Name: f.Name, Bytes: f.Layout.FileSize(), HeaderBytes: int64(len(f.Layout.HeaderBytes()))}
		if parted {
			file.Worker = new(plan.WorkerOf(f.Name))
		}
		doc.Files = append(doc.Files, file)
	}
	for _, c := range plan.Companions() {
		doc.Companions = append(doc.Companions, fileDocument{c.Name, c.Size})
	}
	layouts := layoutsOf(plan)
	for _, d := range plan.Decisions {
		doc.Tensors = append(doc.Tensors, decisionDocument{Name: d.Weight.Name, Shape: cli.OrEmpty(d.Weight.Shape), Quantize: d.Action == convert.Quantize, Becomes: plan.FormatName(d),
			Reason: d.Reason, File: d.File, Stored: storedDocuments(plan, d, layouts), Bytes: d.Bytes()})
	}
	return doc
}

func layoutsOf(plan *convert.Plan) map[string]*safetensors.Layout {
	layouts := map[string]*safetensors.Layout{}
	for _, f := range plan.Files {
		layouts[f.Name] = f.Layout
	}
	return layouts
}

// storedDocuments returns the tensors that a weight is stored in.
func storedDocuments(plan *convert.Plan, d convert.Decision, layouts map[string]*safetensors.Layout) []storedDocument {
	stored := []storedDocument{}
	for _, s := range d.Stored {
		offset, _ := layouts[d.File].Offset(s.Name)
		begin, n := d.Extent(s)
		dtype, shape := s.Dtype.String(), s.Shape
		if s.Part == checkpoint.Blocks { // structs of codes and scales, which GGUF has a type for
			dtype, shape = strings.ToUpper(plan.Format.Name), d.Weight.Shape
		}
		stored = append(stored, storedDocument{s.Name, dtype, cli.OrEmpty(shape), offset + begin, n})
	}
	return stored
}
