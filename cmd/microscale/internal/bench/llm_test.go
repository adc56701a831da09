package bench

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// TestLLM measures a small random model with inputs of every format.
func TestLLM(t *testing.T) {
	tiny := Shape{"tiny", 64, 128, 2, 2, 1, 32, 256}
	for _, f := range []quant.Format{quant.MXFP4, quant.BF16} {
		for _, inputs := range []decoder.Inputs{{Format: quant.BF16}, {Format: quant.MXINT8}, {Format: quant.MXINT8, Residual: true},
			{Format: quant.F32}} {
			t.Run(fmt.Sprintf("%s/%s/%v", f.Name, inputs.Format.Name, inputs.Residual), func(t *testing.T) {
				dir := t.TempDir()
				model, err := WriteRandom(t.Context(), dir, tiny, f, 1)
				if err != nil {
					t.Fatal(err)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
					t.Errorf("got files %v (error %v), want only the model", entries, err)
				}
				source, err := hf.Open(model)
				if err != nil {
					t.Fatal(err)
				}
				defer source.Close()
				team, err := NewTeam(1)
				if err != nil {
					t.Fatal(err)
				}
				defer team.Close()
				var rounds []string
				r, err := team.LLM(t.Context(), LLM{Source: source, Inputs: inputs, Prompt: 12, Generate: 3, Depth: 5,
					Rounds: 2, Progress: func(test string) { rounds = append(rounds, test) }}, time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				if len(rounds) != 6 || len(r.Tests) != 2 || r.Tests[0].Name != "pp12" || r.Tests[1].Name != "tg3" {
					t.Errorf("got rounds %v and tests %+v", rounds, r.Tests)
				}
				for _, test := range r.Tests {
					if !(test.Rate() > 0 && test.Limit > 0) || math.IsInf(test.Limit, 0) || test.Time.Runs+test.Time.Disturbed != 2 || test.LimitBy == "" {
						t.Errorf("%s: got %+v", test.Name, test)
					}
				}
				parameters := 2*(2*64*64+2*32*64+3*64*128) + 256*64 // of layers and head
				if want := int(f.BitsPerElement() / 8 * float64(parameters)); r.Bytes != want {
					t.Errorf("got %d bytes per token, want %d", r.Bytes, want)
				}
			})
		}
	}
	if _, err := ParseShape("2B"); err == nil {
		t.Error("ParseShape: got no error for an unknown shape")
	}
}
