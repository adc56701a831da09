package evaluation

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// TestByteEvaluation trains a small model and evaluates it.
func TestByteEvaluation(t *testing.T) {
	c := train.DefaultConfig()
	c.Model.HiddenSize, c.Model.IntermediateSize, c.Model.NumHiddenLayers, c.Model.MaxPositionEmbeddings = 64, 64, 1, 32
	c.Steps, c.Sequence, c.Batch, c.ValidationTokens = 3, 32, 2, 64
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		t.Fatal(err)
	}
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		t.Fatal(err)
	}
	c.Data, c.Recipe, c.Out = corpus, bf16, filepath.Join(t.TempDir(), "model")
	if _, err := train.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	result, err := ByteEvaluation{Model: c.Out, Data: []string{"synthetic:"}, Tokens: 64, Recipe: bf16}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := result.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	var doc Document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || !(doc.NLL > 0 && doc.NLL < 6) || doc.Context != 32 || doc.Windows != 2 ||
		doc.Tokens != 64 || doc.Scored != 64 || doc.Bytes != 64 || doc.Accumulate != "fp32" || len(doc.Data) != 1 ||
		!strings.Contains(out.String(), `"nll_stderr": null`) {
		t.Errorf("%+v, %v", doc, err)
	}
}

// TestShortName: a linear layer is named within its layer, and others whole.
func TestShortName(t *testing.T) {
	for module, want := range map[string]string{"model.layers.3.mlp.down_proj": "mlp.down_proj", "lm_head": "lm_head"} {
		if got := shortName(module); got != want {
			t.Errorf("%s: got %s, want %s", module, got, want)
		}
	}
}
