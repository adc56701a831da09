package conversion

import (
	"encoding/json"
	"iter"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/safetensors"
)

// A PlanDocument is a plan as JSON.
type PlanDocument struct {
	Source      string               `json:"source"`
	Destination string               `json:"destination"`
	Format      string               `json:"format,omitempty"`  // if there are several, all of them
	Formats     []shareDocument      `json:"formats,omitempty"` // if there are several
	Convention  string               `json:"convention,omitempty"`
	Scheme      string               `json:"scheme,omitempty"`
	Method      string               `json:"method,omitempty"` // of choosing scales and codes by statistics
	Budget      *Budget              `json:"budget,omitempty"`
	Repair      *lint.RepairDocument `json:"repair,omitempty"`
	SourceBytes int64                `json:"source_bytes"`
	Bytes       int64                `json:"bytes"`
	Worker      *int                 `json:"worker,omitempty"` // bytes are those of this worker, all else describes the whole result
	Ignore      []string             `json:"ignore"`
	Notes       []string             `json:"notes,omitempty"`
	Extra       []string             `json:"extra"`
	Skipped     []skippedDocument    `json:"skipped"`
	Files       []plannedDocument    `json:"files"`
	Companions  []fileDocument       `json:"companions"`       // auxiliary files
	Config      json.RawMessage      `json:"config,omitempty"` // NaN and infinities as zeros
	Index       json.RawMessage      `json:"index,omitempty"`
	Casts       []castDocument       `json:"casts,omitempty"` // to another block format
	Tensors     []decisionDocument   `json:"tensors"`
}

// A plannedDocument is a planned file of weights.
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

// A decisionDocument is the plan for a weight.
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

// A storedDocument is a tensor of the result, or the slice of one expert.
type storedDocument struct {
	Name   string  `json:"name"`
	Dtype  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // in the file
	Bytes  int64   `json:"bytes"`
}

func newPlanDocument(plan *convert.Plan, src, dst string) PlanDocument {
	stored, _ := plan.SourceBytes()
	doc := PlanDocument{Source: src, Destination: dst, Format: formatsOf(plan), Formats: shareDocuments(plan),
		SourceBytes: stored, Bytes: plan.Bytes(), Ignore: plan.Ignore, Notes: plan.Notes,
		Extra: show.OrEmpty(plan.Source().Extra()), Skipped: skippedDocuments(plan.Source()),
		Companions: []fileDocument{}, Tensors: []decisionDocument{}, Casts: castDocuments(plan), Config: configjson.Standard(plan.Config()),
		Index: plan.Index()}
	doc.Convention, doc.Scheme, doc.Method = plan.Convention, plan.Scheme, plan.Method()
	index, _, parted := plan.Part()
	if parted {
		doc.Worker = &index
	}
	for _, f := range plan.Files() {
		file := plannedDocument{Name: f.Name, Bytes: f.Size, HeaderBytes: f.HeaderSize}
		if parted {
			file.Worker = new(f.Worker)
		}
		doc.Files = append(doc.Files, file)
	}
	for _, c := range plan.Companions() {
		doc.Companions = append(doc.Companions, fileDocument{c.Name, c.Size})
	}
	return doc
}

// decisionDocuments returns the plan for each weight.
func decisionDocuments(plan *convert.Plan) iter.Seq[decisionDocument] {
	return func(yield func(decisionDocument) bool) {
		for d := range plan.Decisions() {
			if !yield(decisionDocument{Name: d.Name, Shape: show.OrEmpty(d.Shape), Quantize: d.Action == convert.Quantize, Becomes: d.Format,
				Reason: d.Reason.Detail, File: d.File, Stored: storedDocuments(plan, d), Bytes: d.Bytes}) {
				return
			}
		}
	}
}

// storedDocuments returns the tensors that store a weight.
func storedDocuments(plan *convert.Plan, d convert.Decision) []storedDocument {
	stored := []storedDocument{}
	for _, t := range d.Tensors {
		dtype, shape := t.Dtype.String(), t.Shape
		if t.Dtype == safetensors.U8 && plan.Convention == checkpoint.GGUF().Name { // interleaved codes and scales, a type of GGUF
			dtype, shape = strings.ToUpper(d.Format), d.Shape
		}
		stored = append(stored, storedDocument{t.Name, dtype, show.OrEmpty(shape), t.Begin, t.Bytes()})
	}
	return stored
}
