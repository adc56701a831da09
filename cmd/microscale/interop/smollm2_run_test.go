package interop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/internal/slow"
)

// smollm2Text are the likeliest continuations that transformers 5.23.0 computes in F32 from the GGUF
// file, up to 60 tokens, or 24 of the completion. The two highest logits differ by 0.054 or more at
// every token. The first question is that of README.md.
var smollm2Text = []struct {
	prompt, text string
	arguments    []string
	full         bool // a run with -full alone asks it
}{
	{"Why is the sky blue?", "The answer to this question lies in the intricate dance of light and color. The sky appears blue because of " +
		"a phenomenon known as Rayleigh scattering. This occurs when light encounters molecules of air, which scatter the shorter " +
		"wavelengths of light, particularly the blue light, in a way that blue appears to be the", []string{"--max-tokens", "60"}, false},
	{"What is the capital of Italy?", "Il Coriobella, Italy.", []string{"--max-tokens", "60"}, false},
	{"Write a haiku about rain.", "In the heart of the night, a gentle rain\nA gentle rain, a gentle rain, a gentle rain\nA gentle rain, " +
		"a gentle rain, a gentle rain\nA gentle rain, a gentle rain, a gentle rain\nA gentle rain, a gentle rain, a gentle rain\nA",
		[]string{"--max-tokens", "60"}, true},
	{"The capital of France is", " Paris.\n\nThe answer is: 2018-01-22 12:1", []string{"--max-tokens", "24", "--no-template"}, true},
}

// TestSmolLM2Run compares greedy text of run with that of transformers, and with README.md.
func TestSmolLM2Run(t *testing.T) {
	model := smollm2(t)
	program, dir, name := build(t), t.TempDir(), filepath.Base(model)
	if err := os.Symlink(model, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	for i, c := range smollm2Text {
		if c.full && !*slow.FullRun {
			continue
		}
		line := append([]string{"run", name, c.prompt, "--temperature", "0"}, c.arguments...)
		cmd := exec.Command(program, line...)
		cmd.Dir = dir
		var rates bytes.Buffer
		cmd.Stderr = &rates
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, &rates)
		}
		t.Logf("%s", strings.TrimSpace(rates.String()))
		if string(out) != c.text+"\n" {
			t.Errorf("%s: got %q, want %q", c.prompt, out, c.text)
		}
		if i == 0 {
			command := "    $ microscale run " + name + ` "` + c.prompt + `" ` + strings.Join(line[3:], " ")
			sameGenerated(t, "README.md", "smollm2", command+"\n    "+strings.Join(wrapped(c.text, 120), "\n    ")+"\n", sameTrimmed)
		}
	}
}

// wrapped returns the lines of a text of at most width bytes.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// TestSmolLM2Serve asks a server the same questions, two at a time.
func TestSmolLM2Serve(t *testing.T) {
	m, err := input.LoadModel(t.Context(), smollm2(t), generation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url := serveModel(t, m)
	answers := make(chan error, 2)
	for _, c := range smollm2Text[:2] {
		go func() {
			answers <- func() error {
				body, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": c.prompt}}, "max_tokens": 60,
					"temperature": 0})
				if err != nil {
					return err
				}
				r, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
				if err != nil {
					return err
				}
				defer func() { _ = r.Body.Close() }() // nothing follows the answer
				var got struct {
					Choices []struct{ Message struct{ Content string } }
				}
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
					return err
				}
				if len(got.Choices) != 1 || got.Choices[0].Message.Content != c.text {
					t.Errorf("%s: got %+v, want %q", c.prompt, got, c.text)
				}
				return nil
			}()
		}()
	}
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}
