// Package playground answers what the page of cmd/microscale/playground asks: it computes and prints as the commands explain,
// inspect, lint and identify do.
package playground

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Request is a question of the page, in JSON. Fields that a command does not need are empty.
type Request struct {
	Command   string `json:"command"` // one of commands
	Values    string `json:"values"`
	Format    string `json:"format"`
	Profile   string `json:"profile"`
	ScaleRule string `json:"rule"`
	Amax      string `json:"amax"`
	Source    string `json:"source"`   // path of a checkpoint
	Original  string `json:"original"` // path of the checkpoint before quantization, for identify and block
	Weight    string `json:"weight"`   // for block
	Block     string `json:"block"`
}

// An Answer is what the page shows, in JSON.
type Answer struct {
	Text        string          `json:"text"`                  // as the command prints it
	Line        string          `json:"line"`                  // the command line that prints it
	Error       string          `json:"error,omitempty"`       // one line
	Explanation json.RawMessage `json:"explanation,omitempty"` // as explain --json prints it
	Choices     *Choices        `json:"choices,omitempty"`
	Weights     []string        `json:"weights,omitempty"` // the first quantized ones of an inspected checkpoint
}

// commands are the questions by name.
var commands = map[string]func(ctx context.Context, r *Request, a *Answer) error{
	"choices": func(_ context.Context, _ *Request, a *Answer) error {
		a.Choices = choices()
		return nil
	},
	"explain":  explain,
	"inspect":  inspectCheckpoint,
	"lint":     lintCheckpoint,
	"identify": identifyWriters,
	"block":    explainBlock,
}

// Ask answers a request.
func Ask(ctx context.Context, request []byte) []byte {
	var r Request
	var a Answer
	err := json.Unmarshal(request, &r)
	if err == nil {
		if command := commands[r.Command]; command != nil {
			err = command(ctx, &r, &a)
		} else {
			err = fmt.Errorf("no command is called %q", r.Command)
		}
	}
	if err != nil {
		a = Answer{Error: show.OneLine(err)}
	}
	answer, err := json.Marshal(a)
	if err != nil {
		return []byte(`{"error": "the answer is not JSON"}`) // no answer has such values
	}
	return answer
}

// line returns a command line of the program.
func line(args ...string) string {
	args = slices.DeleteFunc(args, func(a string) bool { return a == "" })
	for i, a := range args {
		if strings.ContainsAny(a, " '\"$&;()*?<>|`\\#~!") {
			args[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return "microscale " + strings.Join(args, " ")
}
