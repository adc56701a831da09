package lint

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// maxPrinted is the number of findings of one rule that Print prints without --each.
const maxPrinted = 3

// Print prints a report: for each rule and its clients the findings, and what can be done.
func Print(w io.Writer, arg string, r *Report, each bool) error {
	var b strings.Builder
	for from := 0; from < len(r.Findings); {
		first := r.Findings[from]
		to := from + 1
		for to < len(r.Findings) && r.Findings[to].Rule == first.Rule && slices.Equal(r.Findings[to].Clients, first.Clients) {
			to++
		}
		about := ""
		if len(first.Clients) > 0 {
			about = " for " + strings.Join(first.Clients, ", ")
		}
		fmt.Fprintf(&b, "%s %s %s%s\n", first.Rule.Severity, first.Rule.ID, first.Rule.Name, about)
		for i, f := range r.Findings[from:to] {
			if i == maxPrinted && !each {
				fmt.Fprintf(&b, "  and %d more\n", to-from-i)
				break
			}
			if f.Tensor != "" {
				fmt.Fprintf(&b, "  %s: %s\n", show.Printable(f.Tensor), show.Escaped(f.Text))
			} else {
				fmt.Fprintf(&b, "  %s\n", show.Escaped(f.Text))
			}
		}
		fmt.Fprintf(&b, "  why: %s\n  remedy: %s\n", first.Rule.Why, strings.ReplaceAll(first.Rule.Remedy, "`", ""))
		from = to
	}
	fmt.Fprintf(&b, "%s: %s\n", show.Printable(strings.TrimSuffix(arg, ":")), Summary(r))
	_, err := io.WriteString(w, b.String())
	return err
}

// Summary returns the number of findings, and for which clients there are rules.
func Summary(r *Report) string {
	text := fmt.Sprintf("%s, %s, %s", show.Counted(r.Count(Error), "error"), show.Counted(r.Count(Warning), "warning"),
		show.Counted(r.Count(Note), "note"))
	text += "; checked for " + cmp.Or(strings.Join(r.Clients, ", "), "no client")
	if len(r.Skipped) > 0 {
		text += ", not read by " + strings.Join(r.Skipped, ", ")
	}
	return text
}

// A Document is a report as JSON.
type Document struct {
	Source   string            `json:"source"`
	Clients  []string          `json:"clients"`
	Skipped  []string          `json:"skipped"` // clients that read no such checkpoint
	Errors   int               `json:"errors"`
	Warnings int               `json:"warnings"`
	Notes    int               `json:"notes"`
	Findings []findingDocument `json:"findings"`
}

type findingDocument struct {
	Rule       string   `json:"rule"`
	Name       string   `json:"name"`
	Severity   string   `json:"severity"`
	Clients    []string `json:"clients"` // none: any
	Tensor     string   `json:"tensor"`  // or module; "" for the checkpoint
	File       string   `json:"file"`
	Text       string   `json:"text"`
	Why        string   `json:"why"`
	Remedy     string   `json:"remedy"`
	Repairable bool     `json:"repairable"` // by repair, without --source; nothing that a repair leaves is
	Source     string   `json:"source"`
}

// NewDocument returns a report of the SRC that was opened as arg.
func NewDocument(arg string, r *Report) Document {
	d := Document{Source: arg, Clients: show.OrEmpty(r.Clients), Skipped: show.OrEmpty(r.Skipped), Errors: r.Count(Error),
		Warnings: r.Count(Warning), Notes: r.Count(Note)}
	d.Findings = findingDocuments(r.Findings)
	return d
}

func findingDocuments(findings []Finding) []findingDocument {
	docs := make([]findingDocument, 0, len(findings))
	for _, f := range findings {
		docs = append(docs, findingDocument{f.Rule.ID, f.Rule.Name, f.Rule.Severity.String(), show.OrEmpty(f.Clients), f.Tensor,
			f.File, f.Text, f.Rule.Why, f.Rule.Remedy, f.Repairable, f.Rule.Source})
	}
	return docs
}

// A RepairDocument is what a repair changes and leaves, as JSON.
type RepairDocument struct {
	Changes []Change          `json:"changes"`
	Left    []findingDocument `json:"left"`
}

// Document returns r as JSON.
func (r *Repair) Document() *RepairDocument {
	return &RepairDocument{show.OrEmpty(r.Changes), findingDocuments(r.Left)}
}
