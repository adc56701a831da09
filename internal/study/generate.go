package study

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// A Generation generates text with a byte-level model.
type Generation struct {
	Model   string // a directory
	Prompt  string
	Options decoder.GenerateOptions
	Threads int
}

// A GenerateDocument is a generated text as JSON.
type GenerateDocument struct {
	Model           string     `json:"model"`
	Prompt          string     `json:"prompt"`
	Text            string     `json:"text"`  // with U+FFFD for what is not UTF-8
	Bytes           []byte     `json:"bytes"` // unchanged, in base64
	Seed            uint64     `json:"seed"`
	Temperature     float64    `json:"temperature"`
	TopK            int        `json:"top_k"`
	Tokens          int        `json:"tokens"`
	Seconds         float64    `json:"seconds"`
	TokensPerSecond cli.Number `json:"tokens_per_second"`
}

// Run generates the text and writes it to w byte by byte, or as one JSON document.
func (g Generation) Run(ctx context.Context, w io.Writer, asJSON bool) error {
	m, err := LoadModel(ctx, g.Model, decoder.LoadOptions{})
	if err != nil {
		return err
	}
	bf16, err := recipe.Lookup(cli.BaselineRecipe)
	if err != nil {
		return err
	}
	out := &cli.TextWriter{W: w, Escape: cli.IsTerminal(w)}
	if asJSON {
		out.W = io.Discard
	}
	var text []byte
	start := time.Now()
	for token, err := range m.Generate(ctx, nn.Scope{Recipe: bf16, Threads: g.Threads}, []byte(g.Prompt), g.Options) {
		if err != nil {
			if len(text) > 0 {
				out.End()
			}
			return cli.Interrupted(err, fmt.Sprintf("after %d bytes", len(text)))
		}
		if len(text) == 0 {
			out.Write([]byte(g.Prompt))
		}
		out.Write([]byte{token})
		text = append(text, token)
	}
	if !asJSON {
		out.End()
		return out.Err
	}
	seconds := time.Since(start).Seconds()
	return cli.PrintJSON(w, GenerateDocument{
		Model: g.Model, Prompt: g.Prompt, Text: strings.ToValidUTF8(string(text), "\ufffd"), Bytes: text, Seed: g.Options.Seed, Temperature: g.Options.Temperature, TopK: g.Options.TopK,
		Tokens: len(text), Seconds: seconds, TokensPerSecond: cli.Number(float64(len(text)) / seconds),
	})
}
