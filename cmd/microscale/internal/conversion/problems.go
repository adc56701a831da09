package conversion

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/verify"
)

// problemDocument is a problem of a checkpoint as JSON.
type problemDocument struct {
	Tensor string `json:"tensor"`
	Text   string `json:"text"`
}

// problemsOf returns the problems of the structure of m.
func problemsOf(m *checkpoint.Model) []verify.Problem {
	problems := make([]verify.Problem, len(m.Problems))
	for i, p := range m.Problems {
		problems[i] = verify.Problem{Tensor: p.Tensor, Text: p.Text}
	}
	return problems
}

func problemDocuments(problems []verify.Problem) []problemDocument {
	documents := make([]problemDocument, len(problems))
	for i, p := range problems {
		documents[i] = problemDocument{p.Tensor, p.Text}
	}
	return documents
}

// printProblems prints problems, one per line.
func printProblems(w io.Writer, problems []verify.Problem) error {
	for _, p := range problems {
		p = verify.Problem{Tensor: show.Printable(p.Tensor), Text: show.Escaped(p.Text)}
		if _, err := fmt.Fprintf(w, "problem: %s\n", p); err != nil {
			return err
		}
	}
	return nil
}

// printNotes prints what may be a fault, one line each.
func printNotes(w io.Writer, notes []string) error {
	for _, note := range notes {
		if _, err := fmt.Fprintf(w, "note: %s\n", show.Escaped(note)); err != nil {
			return err
		}
	}
	return nil
}
