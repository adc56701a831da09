package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"regexp/syntax"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/hub"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/internal/sample"
)

// sourceHelp is what the help of every command that takes a SRC says of it.
const sourceHelp = `SRC is a Hugging Face directory (config.json, one or many *.safetensors, an
index), a single .safetensors or .gguf file, hf://OWNER/NAME or
hf://OWNER/NAME@REVISION (a model on the Hugging Face Hub, read from there by HF_ENDPOINT, HF_TOKEN and
HF_HOME), or "sample:", a small Llama-shaped checkpoint of 9.7 M parameters that
the program makes itself, the same every time.`

// openModel opens a SRC. It must be closed.
func openModel(ctx context.Context, arg string) (*checkpoint.Model, *hf.Checkpoint, error) {
	if info, err := os.Stat(arg); err == nil && !info.IsDir() && strings.HasSuffix(arg, convert.GGUFSuffix) {
		m, err := llamacpp.Open(arg)
		if err != nil {
			return nil, nil, err
		}
		return m, m.Source, nil
	}
	source, err := openSource(ctx, arg)
	if err != nil {
		return nil, nil, err
	}
	return checkpoint.Read(source), source, nil
}

// ggufDestination chooses the convention of GGUF files where DST is one, and
// refuses that convention where it is not.
func ggufDestination(layout *choice[*checkpoint.Convention], dst string) error {
	isFile := strings.HasSuffix(dst, convert.GGUFSuffix)
	switch {
	case isFile && !layout.given:
		layout.value = checkpoint.GGUF()
	case isFile && !layout.value.Is(checkpoint.GGUF()):
		return misuse("%s ends in %s, and convention %s writes no GGUF file: name another DST, or leave --convention out", printable(dst), convert.GGUFSuffix, layout.value)
	case !isFile && layout.value.Is(checkpoint.GGUF()):
		return misuse("convention %s writes one file: end the name of DST in %s", layout.value, convert.GGUFSuffix)
	}
	return nil
}

// openSource opens a checkpoint on the hub, the sample, or one of the disk.
func openSource(ctx context.Context, arg string) (*hf.Checkpoint, error) {
	if !strings.HasPrefix(arg, hub.Scheme) {
		c, err := sample.Open(ctx, arg)
		return c, interrupted(err, "the sample was not made")
	}
	client, err := hub.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	c, err := client.Open(ctx, arg)
	return c, interrupted(err, "the model on the hub was not opened")
}

// interruptible makes the context of a command end when the user interrupts it,
// so that the command can remove what it has written. A second interruption,
// graceTime later, ends the process as it is.
func interruptible(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(graceTime, stop) })()
		cmd.SetContext(ctx)
		return work(cmd, args)
	}
}

// graceTime is longer than the time between two signals of one interruption:
// some programs send it to a process and then to its group.
const graceTime = time.Second

// interrupted words the error of a job that was interrupted.
func interrupted(err error, what string) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %s", what)
	}
	return err
}

// addThreads gives cmd --threads.
func addThreads(cmd *cobra.Command) *uint {
	return cmd.Flags().Uint("threads", 0, "work on `N` processors (default all); the result is the same for any number")
}

// patterns is the value of a flag of regular expressions, given any number of times.
type patterns []*regexp.Regexp

func (p *patterns) String() string {
	var texts []string
	for _, re := range *p {
		texts = append(texts, re.String())
	}
	return strings.Join(texts, " ")
}

func (p *patterns) Type() string { return "REGEXP" }

func (p *patterns) Set(s string) error {
	re, err := regexp.Compile(s)
	if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%q is not a regular expression: %s", s, bad.Code)
	}
	if err != nil {
		return err
	}
	*p = append(*p, re)
	return nil
}

type problemDocument struct {
	Tensor string `json:"tensor"`
	Text   string `json:"text"`
}

func problemDocuments(problems []checkpoint.Problem) []problemDocument {
	documents := make([]problemDocument, len(problems))
	for i, p := range problems {
		documents[i] = problemDocument{p.Tensor, p.Text}
	}
	return documents
}

// printProblems lists problems, one a line.
func printProblems(w io.Writer, problems []checkpoint.Problem) error {
	for _, p := range problems {
		p = checkpoint.Problem{Tensor: printable(p.Tensor), Text: escaped(p.Text)}
		if _, err := fmt.Fprintf(w, "problem: %s\n", p); err != nil {
			return err
		}
	}
	return nil
}
