package interop

import (
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// compareGGUFDirectories writes the models of families.py in root as GGUF files in BF16, and these as
// Hugging Face directories, and compares their logits in transformers with ours.
func compareGGUFDirectories(t *testing.T, interpreter, root string) {
	t.Helper()
	for _, name := range inGGUF {
		file := filepath.Join(t.TempDir(), name+".gguf")
		source, err := convert.Open(filepath.Join(root, name, "model"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.BF16},
			Convention: "gguf"})
		if err == nil {
			_, err = plan.Run(t.Context(), file, convert.RunOptions{})
		}
		source.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		writeDecoded(t, file, filepath.Join(root, name, "directory"), safetensors.BF16)
	}
	script(t, interpreter, "directory_logits.py", root)
	for _, name := range inGGUF {
		t.Run(name+"/directory", func(t *testing.T) {
			tokens, want := expectedLogits(t, filepath.Join(root, name, "directory.safetensors"))
			m := loadDecoder(t, filepath.Join(root, name, "directory"), false)
			t.Logf("largest difference %.2g of the largest logit", requireLogits(t, allLogits(t, m, tokens), want))
		})
	}
}
