package push

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
)

// TestCard checks what a card takes from the original's: metadata and text, or all as text if it has no valid metadata.
func TestCard(t *testing.T) {
	c := Card{Title: "small", Model: &checkpoint.Model{}, Divergence: &Divergence{0.25, 0.125, 0.375, 4096}, Version: "1"}
	for original, want := range map[string]string{
		"":                                  "---\ntags:\n    - microscale\n---\n\n# small\n",
		"---\ntags: chat\nx: 1\n---\nText.": "---\ntags:\n    - chat\n    - microscale\nx: 1\n---\n\n# small\n",
		"---\r\nx: 1\r\n---\r\nText.":       "---\ntags:\n    - microscale\nx: 1\n---\n\n# small\n",
		"---\nx: 1\n---":                    "---\ntags:\n    - microscale\nx: 1\n---\n\n# small\n",
		"---\n[\n---\nText.":                "## Card of the original\n\n---\n[\n---\nText.\n",
		"Text.":                             "## Card of the original\n\nText.\n",
	} {
		text, err := c.Text([]byte(original))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q: %v\n%s", original, err, text)
		}
		if !strings.Contains(string(text), "0.25 nats per token (95 % interval 0.125 to 0.375), over 4096 tokens.\n") {
			t.Errorf("the divergence is missing:\n%s", text)
		}
	}
	c.Divergence.Low = math.NaN()
	if text, _ := c.Text(nil); strings.Contains(string(text), "interval") {
		t.Errorf("an interval of one window:\n%s", text)
	}
}

// TestCardOfOthers checks that a card does not claim what files of another program do not say.
func TestCardOfOthers(t *testing.T) {
	m := &checkpoint.Model{Source: &hf.Checkpoint{}, Convention: checkpoint.Plain()}
	text, err := Card{Title: "small", Model: m, Version: "1"}.Text(nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); !strings.Contains(s, "A checkpoint, quantized, and stored as "+m.Convention.Name) || strings.Contains(s, "Codes") ||
		strings.Contains(s, "with [Microscale]") {
		t.Errorf("got\n%s", s)
	}
}
