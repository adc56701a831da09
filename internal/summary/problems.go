package summary

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/cli"
)

// ProblemDocument is a problem of a checkpoint as JSON.
type ProblemDocument struct {
	Tensor string `json:"tensor"`
	Text   string `json:"text"`
}

func problemDocuments(problems []checkpoint.Problem) []ProblemDocument {
	documents := make([]ProblemDocument, len(problems))
	for i, p := range problems {
		documents[i] = ProblemDocument{p.Tensor, p.Text}
	}
	return documents
}

// printProblems lists problems, one a line.
func printProblems(w io.Writer, problems []checkpoint.Problem) error {
	for _, p := range problems {
		p = checkpoint.Problem{Tensor: cli.Printable(p.Tensor), Text: cli.Escaped(p.Text)}
		if _, err := fmt.Fprintf(w, "problem: %s\n", p); err != nil {
			return err
		}
	}
	return nil
}
