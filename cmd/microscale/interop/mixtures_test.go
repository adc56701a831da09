package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// TestTorchMixtures quantizes small models of all mixtures of experts that transformers has, made from their
// configuration classes. Tensors with all experts of a layer are quantized, or on the ignore list and in a
// note; routers stay.
func TestTorchMixtures(t *testing.T) {
	interpreter := withTorch(t, "transformers does not make its mixtures of experts", architecturesWith...)
	root := t.TempDir()
	script(t, interpreter, "mixtures.py", root)
	kinds, err := filepath.Glob(filepath.Join(root, "*", "expected.json"))
	if err != nil || len(kinds) < 50 {
		t.Fatalf("%d models, %v, want at least 50", len(kinds), err)
	}
	stacks, split := 0, 0
	for _, path := range kinds {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var want struct{ Stacks, Routers []string }
			data, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(data, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, notes := quantizedMixture(t, dir)
			stacks += len(want.Stacks)
			for _, name := range want.Stacks {
				w, whole := got.Lookup(name)
				if !whole {
					split++
					continue
				}
				module := strings.TrimSuffix(name, ".weight")
				parent := module[:strings.LastIndexByte(module, '.')]
				listed := slices.ContainsFunc(got.Ignore, func(entry string) bool { return names(entry, parent) })
				if !w.Quantized() && (!listed || !strings.Contains(notes, "are not quantized")) {
					t.Errorf("%s is neither quantized nor listed; notes: %s", name, notes)
				}
			}
			for _, name := range want.Routers {
				if w, ok := got.Lookup(name); ok && w.Quantized() {
					t.Errorf("the router %s is quantized", name)
				}
			}
			if problems := got.ExpertsUnlisted(); len(problems) > 0 {
				t.Errorf("%d stacks are unlisted, first %s", len(problems), problems[0].Name)
			}
		})
	}
	t.Logf("%d models, %d stacks, of which %d became single experts", len(kinds), stacks, split)
}

// names reports whether an entry of an ignore list names a module, or modules of it.
func names(entry, module string) bool {
	if pattern, ok := strings.CutPrefix(entry, "re:"); ok {
		return regexp.MustCompile("^(?:" + pattern + ")").MatchString(module)
	}
	return strings.HasPrefix(entry, module)
}

// quantizedMixture returns a model in NVFP4 of compressed-tensors, and the notes of the run.
func quantizedMixture(t *testing.T, dir string) (*checkpoint.Model, string) {
	t.Helper()
	source, err := convert.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
		Convention: "compressed-tensors"})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err := convert.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return checkpoint.Read(out), strings.Join(plan.Notes, "\n")
}
