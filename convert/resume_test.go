package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// tiledModel is a checkpoint whose larger weights have several tiles each.
func tiledModel() map[string][]made {
	const bf16 = safetensors.BF16
	return map[string][]made{
		shard1: {
			{"model.layers.0.self_attn.q_proj.weight", bf16, 0.01, []int64{700, 512}},
			{"model.layers.0.norm.weight", bf16, 1, []int64{512}},
			{"model.embed_tokens.weight", bf16, 0.02, []int64{900, 256}},
			{"model.none.weight", bf16, 1, []int64{0, 64}},
		},
		shard2: {
			{"model.layers.0.self_attn.k_proj.weight", bf16, 0.1, []int64{600, 512}},
			{"model.layers.0.mlp.down_proj.weight", safetensors.F32, 0.02, []int64{300, 1024}},
			{"lm_head.weight", bf16, 0.02, []int64{96, 64}},
		},
	}
}

// planFor plans a conversion of the source to the given format, or to decoded values if it is
// "".
func planFor(t *testing.T, src, format string) *Plan {
	t.Helper()
	m := openModel(t, src)
	var plan *Plan
	var err error
	if format == "" {
		plan, err = PlanDequantize(t.Context(), m.Source, safetensors.BF16)
	} else {
		var f quant.Format
		if f, err = quant.Lookup(format); err == nil {
			plan, err = PlanQuantize(t.Context(), m.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// interrupted runs a plan with Resume, ends it after n reads of tiles of the source, and
// reports whether it ended early.
func interrupted(t *testing.T, plan *Plan, dst string, n int) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := plan.Run(ctx, dst, RunOptions{Resume: true, Threads: 3, Progress: func(verify.Progress) {
		if n--; n < 0 {
			cancel()
		}
	}})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return err != nil
}

// TestResume ends runs after various numbers of tiles, some of them several times, and resumes
// them: bytes and errors equal those of an uninterrupted run.
func TestResume(t *testing.T) {
	src := writeModel(t, tiledModel(), madeConfig)
	mxfp8 := filepath.Join(t.TempDir(), "mxfp8")
	if _, err := planFor(t, src, "mxfp8").Run(context.Background(), mxfp8, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ format, src string }{
		{"mxfp8", src}, {"nvfp4", src}, {"fp8-tensor", src}, {"", mxfp8}, {"mxfp6-e2m3", filepath.Join(src, shard1)},
	} {
		t.Run("format="+tc.format, func(t *testing.T) {
			dir := t.TempDir()
			suffix := filepath.Ext(tc.src)
			whole := filepath.Join(dir, "whole"+suffix)
			want, err := planFor(t, tc.src, tc.format).Run(context.Background(), whole, RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ended := 0
			for n := 0; ; n += 1 + n/3 {
				dst := filepath.Join(dir, fmt.Sprint("dst", n, suffix))
				times := 1 + n%3
				for range times {
					if !interrupted(t, planFor(t, tc.src, tc.format), dst, n) {
						break
					}
					ended++
				}
				got, err := planFor(t, tc.src, tc.format).Run(context.Background(), dst, RunOptions{Resume: true})
				if err != nil {
					t.Fatal(err)
				}
				sameResult(t, dst, whole)
				if got.Finished { // it was not ended any more
					break
				}
				sameReport(t, got.Tensors, want.Tensors)
				if n > 3 && !got.Resumed {
					t.Errorf("after %d tiles, the work starts again", n)
				}
			}
			if ended < 5 {
				t.Errorf("only %d runs were ended", ended)
			}
		})
	}
}

// sameResult compares two results, and checks that no other file is beside the first.
func sameResult(t *testing.T, got, want string) {
	t.Helper()
	if left, _ := filepath.Glob(got + ".microscale-*"); len(left) > 0 {
		t.Errorf("%s is left", left)
	}
	if info, err := os.Stat(want); err == nil && !info.IsDir() {
		a, errA := os.ReadFile(got)
		b, errB := os.ReadFile(want)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s and %s differ (%v, %v)", got, want, errA, errB)
		}
		return
	}
	if !maps.EqualFunc(contents(t, got), contents(t, want), bytes.Equal) {
		t.Fatalf("%s and %s differ", got, want)
	}
}

// TestResumeCopied: an auxiliary file is copied once.
func TestResumeCopied(t *testing.T) {
	src, dst := writeModel(t, tiledModel(), madeConfig), filepath.Join(t.TempDir(), "dst")
	writeText(t, filepath.Join(src, "tokenizer.json"), "{}")
	writeText(t, filepath.Join(src, "vocab.txt"), "a")
	writeText(t, filepath.Join(src, "merges.txt"), "a")
	partly(t, src, dst, 12)
	long := time.Unix(1e9, 0)
	// the second is cut, the third has other contents
	for name, text := range map[string]string{"tokenizer.json": "{}", "vocab.txt": "", "merges.txt": "b"} {
		path := filepath.Join(dst+partialSuffix, name)
		writeText(t, path, text)
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: true}); err != nil {
		t.Fatal(err)
	}
	for name, copied := range map[string]bool{"tokenizer.json": false, "vocab.txt": true, "merges.txt": true} {
		info, err := os.Stat(filepath.Join(dst, name))
		if err != nil {
			t.Fatal(err)
		}
		if !info.ModTime().Equal(long) != copied {
			t.Errorf("%s was copied again: %v, want %v", name, !copied, copied)
		}
	}
	if got := contents(t, dst); string(got["tokenizer.json"]) != "{}" || string(got["vocab.txt"]) != "a" || string(got["merges.txt"]) != "a" {
		t.Errorf("%q, %q, %q", got["tokenizer.json"], got["vocab.txt"], got["merges.txt"])
	}
}

// TestResumeRejects: resuming with another source, other options or missing files is an error,
// and loses nothing.
func TestResumeRejects(t *testing.T) {
	for _, tc := range []struct {
		name, format string
		change       func(src, dst string) error
		want         string
	}{
		{"another format", "mxfp8", nil, "other options"},
		{"longer", "nvfp4", func(src, _ string) error { return appendTo(filepath.Join(src, "tokenizer.json"), "x") }, "had 2 when"},
		{"touched", "nvfp4", func(src, _ string) error {
			return os.Chtimes(filepath.Join(src, shard1), time.Time{}, time.Unix(1e9, 0))
		}, "changed after the earlier run began"},
		{"other weights", "nvfp4", func(src, _ string) error {
			path := filepath.Join(src, shard1)
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i := len(data) / 2; i < len(data); i++ {
				data[i] ^= 1
			}
			return errors.Join(os.WriteFile(path, data, 0o666), os.Chtimes(path, time.Time{}, info.ModTime()))
		}, "has other contents"},
		{"gone", "nvfp4", func(src, _ string) error { return os.Remove(filepath.Join(src, "tokenizer.json")) },
			"was removed after the earlier run began"},
		{"new", "nvfp4", func(src, _ string) error { return appendTo(filepath.Join(src, "new.json"), "x") }, "another source or other options"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := writeModel(t, tiledModel(), madeConfig)
			writeText(t, filepath.Join(src, "tokenizer.json"), "{}")
			dst := filepath.Join(t.TempDir(), "dst")
			journal := partly(t, src, dst, 14)
			before, err := os.ReadFile(journal)
			if err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				if err := tc.change(src, dst); err != nil {
					t.Fatal(err)
				}
			}
			_, err = planFor(t, src, tc.format).Run(context.Background(), dst, RunOptions{Resume: true})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if after, err := os.ReadFile(journal); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the journal is not what it was (%v)", err)
			}
			result, err := planFor(t, src, tc.format).Run(context.Background(), dst, RunOptions{})
			if err != nil || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "which could have been resumed") {
				t.Errorf("without resuming: %+v, %v", result, err)
			}
		})
	}
}

// TestResumeDamaged: a run whose partial files do not match the journal yields the right bytes,
// and reports that it started again.
func TestResumeDamaged(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for _, tc := range []struct {
		name   string
		damage func(path string) error
	}{
		{"gone", os.Remove},
		{"cut", func(path string) error { return os.Truncate(path, 5) }},
		{"empty", func(path string) error { return os.Truncate(path, 0) }},
		{"zeros", func(path string) error {
			return change(path, func(data []byte) { clear(data[len(data)/4 : len(data)/2]) })
		}},
		{"one bit", func(path string) error { return change(path, func(data []byte) { data[len(data)/4] ^= 1 }) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
			whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
			if _, err := planFor(t, src, "nvfp4").Run(context.Background(), whole, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			partly(t, src, dst, 14)
			if err := tc.damage(filepath.Join(dst+partialSuffix, shard1)); err != nil {
				t.Fatal(err)
			}
			result, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: true})
			if err != nil {
				t.Fatal(err)
			}
			if !sameTree(t, dst, whole) {
				t.Error("other bytes than those of a whole run")
			}
			if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "the run restarted") || result.Resumed {
				t.Errorf("warnings %q, resumed %v", result.Warnings, result.Resumed)
			}
			if left := names(t, dir); strings.Contains(left, partialSuffix) {
				t.Errorf("left: %s", left)
			}
		})
	}
}

// change rewrites a file.
func change(path string, edit func(data []byte)) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	edit(data)
	return os.WriteFile(path, data, 0o666)
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TestMismatch checks the fields of the first record that identify a run.
func TestMismatch(t *testing.T) {
	want := &beginning{Version: journalVersion, Plan: "plan", Method: "gptq", Worker: 1, Workers: 2}
	for _, tc := range []struct {
		change func(b *beginning)
		want   string
	}{
		{func(*beginning) {}, ""},
		{func(b *beginning) { b.Version++ }, "the journal has version"},
		{func(b *beginning) { b.Version-- }, "the journal has version"},
		{func(b *beginning) { b.Worker = 0 }, "the journal belongs to worker 0 of 2"},
		{func(b *beginning) { b.Workers = 3 }, "the journal belongs to worker 1 of 3"},
		{func(b *beginning) { b.Plan = "another" }, "the earlier run had another source or other options"},
		{func(b *beginning) { b.Method = "" }, ""}, // by an earlier program
		{func(b *beginning) { b.Plan, b.Method = "another", "" }, "the earlier run had another source or other options"},
		{func(b *beginning) { b.Plan, b.Method = "another", "nearest" }, "the earlier run had method nearest, and this one has method gptq"},
	} {
		b := *want
		tc.change(&b)
		if got := b.mismatch(want, "source"); !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%+v: %q, want %q", b, got, tc.want)
		}
	}
	if got := (*beginning)(nil).mismatch(want, "source"); got != "the journal does not identify its run" {
		t.Errorf("without a first record: %q", got)
	}
}

// TestBehavior: the fingerprint depends on every field of a quantizer, and a quantizer with the zero of a field has
// the fingerprint that it had before quant knew the field.
func TestBehavior(t *testing.T) {
	if got := behavior(quant.Quantizer{Format: quant.NVFP4}); got != "" {
		t.Errorf("the zero behavior is %q", got)
	}
	seen := map[string]string{}
	for f := range reflect.TypeFor[quant.Quantizer]().Fields() {
		if f.Name == "Format" {
			continue
		}
		var q quant.Quantizer
		switch v := reflect.ValueOf(&q).Elem().FieldByIndex(f.Index); {
		case v.CanInt():
			v.SetInt(1)
		case v.CanUint():
			v.SetUint(1)
		case v.CanFloat():
			v.SetFloat(1)
		default:
			v.SetBool(true)
		}
		text := behavior(q)
		if other, ok := seen[text]; text == "" || ok {
			t.Errorf("%s: the list is %q, as for %q", f.Name, text, other)
		}
		seen[text] = f.Name
	}
}

// TestResumeFinished: resuming leaves a complete result unchanged, but not a result of other
// options with the same names and sizes.
func TestResumeFinished(t *testing.T) {
	src := writeModel(t, tiledModel(), madeConfig)
	for _, format := range []string{"mxfp8", "nvfp4"} {
		dst := filepath.Join(t.TempDir(), "dst")
		plan := planFor(t, src, format)
		if _, err := plan.Run(context.Background(), dst, RunOptions{Resume: true}); err != nil {
			t.Fatal(err)
		}
		before := contents(t, dst)
		if result, err := plan.Run(context.Background(), dst, RunOptions{Resume: true}); err != nil || !result.Finished {
			t.Errorf("%s: %+v, %v", format, result, err)
		}
		if !maps.EqualFunc(before, contents(t, dst), bytes.Equal) {
			t.Errorf("%s: the result has changed", format)
		}
		other := planFor(t, src, format)
		for i, d := range other.decisions {
			if d.quantizer != nil {
				q := *d.quantizer
				q.Rule, q.Arithmetic = quant.Floor, quant.DecodeFirst
				other.decisions[i].quantizer = &q
			}
		}
		if result, err := other.Run(context.Background(), dst, RunOptions{Resume: true}); err == nil || !strings.Contains(err.Error(),
			"the destination exists") {
			t.Errorf("%s, other options: %+v, %v", format, result, err)
		}
		if result, err := other.Run(context.Background(), dst, RunOptions{Resume: true, Force: true}); err != nil || result.Finished {
			t.Errorf("%s, other options by force: %+v, %v", format, result, err)
		}
		if maps.EqualFunc(before, contents(t, dst), bytes.Equal) {
			t.Errorf("%s: other options give the same bytes", format)
		}
	}
}

// TestResumeAuxiliary: a result is complete only with all auxiliary files in their sizes.
func TestResumeAuxiliary(t *testing.T) {
	src, dst := writeModel(t, square(), madeConfig), filepath.Join(t.TempDir(), "dst")
	if err := os.WriteFile(filepath.Join(src, "merges.txt"), []byte("a b\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	plan := planFor(t, src, "mxfp8")
	if _, err := plan.Run(context.Background(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if result, err := plan.Run(context.Background(), dst, RunOptions{Resume: true}); err != nil || !result.Finished {
		t.Fatalf("a finished result: %+v, %v", result, err)
	}
	file := filepath.Join(dst, "merges.txt")
	if err := os.WriteFile(file, []byte("a b\nc d\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, RunOptions{Resume: true}); err == nil {
		t.Error("a result whose auxiliary file has another size is taken for finished")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, RunOptions{Resume: true}); err == nil {
		t.Error("a result without its auxiliary file is taken for finished")
	}
}

// TestQuantizedFirst: the error for a quantized source names its format, even if the first
// weight is the quantized one.
func TestQuantizedFirst(t *testing.T) {
	src := writeModel(t,
		map[string][]made{"model.safetensors": {{"model.layers.0.mlp.down_proj.weight", safetensors.BF16, 1, []int64{128, 256}}}}, madeConfig)
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := planFor(t, src, "mxfp8").Run(context.Background(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := PlanQuantize(t.Context(), openModel(t, dst).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}})
	if err == nil || !strings.Contains(err.Error(), "mxfp8)") {
		t.Errorf("the error is %v, want the format mxfp8 in it", err)
	}
}

// TestResumeLastMoment: resuming completes a run that was killed after it removed its journal
// and before it renamed the result.
func TestResumeLastMoment(t *testing.T) {
	src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
	whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
	for _, path := range []string{whole, dst} {
		if _, err := planFor(t, src, "nvfp4").Run(context.Background(), path, RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(dst, dst+partialSuffix); err != nil {
		t.Fatal(err)
	}
	result, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: true})
	if err != nil || !result.Finished {
		t.Errorf("%+v, %v", result, err)
	}
	sameResult(t, dst, whole)
}

// TestResumeLostJournal: resuming completes a run to a file that is finished but for its name, though its
// journal is lost.
func TestResumeLostJournal(t *testing.T) {
	src := filepath.Join(writeModel(t, map[string][]made{"model.safetensors": {{"l.0.weight", safetensors.BF16, 1, []int64{64, 64}}}}, ""),
		"model.safetensors")
	dst := filepath.Join(t.TempDir(), "dst.safetensors")
	if _, err := planFor(t, src, "mxfp8").Run(t.Context(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	want := readFile(t, dst)
	if err := errors.Join(os.Mkdir(dst+partialSuffix, 0o777), os.Rename(dst, filepath.Join(dst+partialSuffix, singleName))); err != nil {
		t.Fatal(err)
	}
	result, err := planFor(t, src, "mxfp8").Run(t.Context(), dst, RunOptions{Resume: true})
	if err != nil || !result.Finished {
		t.Errorf("%+v, %v", result, err)
	}
	if !bytes.Equal(readFile(t, dst), want) {
		t.Error("the result differs")
	}
}

// TestFingerprint: equal plans have equal fingerprints. A quantizer holds only values, whose
// text is the same in every process.
func TestFingerprint(t *testing.T) {
	src := writeModel(t, tiledModel(), madeConfig)
	plan := planFor(t, src, "nvfp4")
	if a, b := plan.fingerprint(), planFor(t, src, "nvfp4").fingerprint(); a != b {
		t.Errorf("%s and %s", a, b)
	}
	seen := map[string]bool{plan.fingerprint(): true}
	first := func(p *Plan) *quant.Quantizer { // of its weights: a copy, as others share it
		i := slices.IndexFunc(p.decisions, func(d decision) bool { return d.action == Quantize })
		q := *p.decisions[i].quantizer
		p.decisions[i].quantizer = &q
		return &q
	}
	for i, change := range []func(p *Plan){
		func(p *Plan) { first(p).Arithmetic = quant.DecodeFirst },
		func(p *Plan) { first(p).Format = quant.MXFP8 },
		func(p *Plan) { p.decisions[0].action = Decode },
		func(p *Plan) { p.config = []byte("{}") },
		func(p *Plan) { // the scale of activations, which are no part of the weights
			i := slices.IndexFunc(p.decisions, func(d decision) bool { return len(d.stored) > 0 })
			p.decisions[i].stored = slices.Clone(p.decisions[i].stored)
			p.decisions[i].stored[0].Value = []byte{1}
		},
	} {
		changed := planFor(t, src, "nvfp4")
		change(changed)
		if f := changed.fingerprint(); seen[f] {
			t.Errorf("change %d is not seen", i)
		} else {
			seen[f] = true
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[quant.Quantizer]()) {
		switch field.Type.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Func, reflect.Slice, reflect.Interface, reflect.Chan:
			t.Errorf("Quantizer.%s is a %v: fingerprint must write what it leads to", field.Name, field.Type)
		}
	}
}

// TestSourceChanges: if a source is modified, replaced or truncated during a run, the run fails
// with an error that reports it.
func TestSourceChanges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(path string) error
		want   string
	}{
		{"written to", func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)) },
			"changed or was replaced while it was read"},
		{"longer", func(path string) error { return appendTo(path, "more") }, "changed or was replaced while it was read"},
		{"cut", func(path string) error { return os.Truncate(path, 4096) }, "changed or was replaced while it was read"},
		{"replaced", func(path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+"2", data, 0o666), os.Rename(path+"2", path))
		}, "changed or was replaced while it was read"},
		{"removed", os.Remove, "whether it changed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
			dst := filepath.Join(dir, "dst")
			var changed error
			calls := 0
			_, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Progress: func(verify.Progress) {
				if calls++; calls == 3 {
					changed = tc.change(filepath.Join(src, shard2))
				}
			}})
			if changed != nil {
				t.Fatal(changed)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), shard2) || strings.Contains(err.Error(),
				"\n") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if names(t, dir) != "" {
				t.Errorf("%s is left", names(t, dir))
			}
		})
	}
}
