package convert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// splitPlan plans a split GGUF file of a model with experts.
func splitPlan(t *testing.T, size int64) (whole, split *Plan) {
	t.Helper()
	src := openModel(t, writeModel(t, mixtral(), mixtralConfig))
	whole, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "gguf"})
	if err == nil {
		split, err = whole.Split(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return whole, split
}

// TestSplit: the parts have the tensors and metadata of the whole file, each at most size bytes of tensors unless it has one weight, and no
// part could take the next weight. Runs that resume, and workers, write the same files; verify and a merge find a damaged one.
func TestSplit(t *testing.T) {
	for _, size := range []int64{1, 3000, 20_000, 1 << 40} {
		whole, plan := splitPlan(t, size)
		types, data, metadata := ggufTensors(t, runTo(t, whole, nil, "whole.gguf"))
		dir := runTo(t, plan, nil, "split")
		n := len(plan.Files())
		if n != len(strings.Fields(names(t, dir))) || size == 1<<40 && n != 1 || size < 1<<40 && n < 2 {
			t.Fatalf("%d: %d files: %s", size, n, names(t, dir))
		}
		path := filepath.Join(dir, fmt.Sprintf("model-00001-of-%05d.gguf", n))
		gotTypes, got, gotMetadata := ggufTensors(t, path)
		if n == 1 { // which is no split model for llama.cpp
			gotMetadata = gotMetadata[:len(gotMetadata)-3]
		}
		if !reflect.DeepEqual(gotTypes, types) || !reflect.DeepEqual(got, data) || !reflect.DeepEqual(gotMetadata, metadata) {
			t.Errorf("%d: other types, bytes or metadata", size)
		}
		checkParts(t, dir, n, len(types), size)
		opened := openGGUF(t, dir)
		if problems, err := opened.Source.Damaged(t.Context(), func(int64) {}); err != nil || len(problems) > 0 || opened.Quantized() == 0 {
			t.Errorf("%d: damaged %v (%v)", size, problems, err)
		}
		if r, err := plan.Run(t.Context(), dir, RunOptions{Resume: true}); err != nil || !r.Finished {
			t.Errorf("%d: a complete result: %+v, %v", size, r, err)
		}
		if n > 1 && (!sameTree(t, dir, resumed(t, plan)) || !sameTree(t, dir, merged(t, plan))) {
			t.Errorf("%d: a run that resumed, or two workers, wrote other files", size)
		}
	}
}

// checkParts checks the keys of the parts, as gguf-split writes them, and the sizes of their tensors.
func checkParts(t *testing.T, dir string, parts, tensors int, size int64) {
	t.Helper()
	full := int64(0) // bytes of the part before
	for i := range parts {
		path := filepath.Join(dir, fmt.Sprintf("model-%05d-of-%05d.gguf", i+1, parts))
		data := readFile(t, path)
		f, err := gguf.NewFile(strings.NewReader(string(data)), int64(len(data)), path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Value("split.no") != uint16(i) || f.Value("split.count") != uint16(parts) || f.Value("split.tensors.count") != int32(tensors) ||
			(f.Value("general.architecture") != nil) != (i == 0) || (len(f.Metadata) > 4) != (i == 0) {
			t.Errorf("%s: metadata %v", path, f.Metadata)
		}
		weights, bytes := 0, f.Tensors[len(f.Tensors)-1].End
		first := int64(0)
		for _, info := range f.Tensors {
			if !strings.HasSuffix(info.Name, ".scale") {
				if weights++; weights == 2 {
					first = info.Begin
				}
			}
		}
		if weights == 1 {
			first = bytes
		}
		if bytes > size && weights > 1 || i > 0 && full+first <= size {
			t.Errorf("%s: %d weights of %d bytes, want at most %d; the part before has %d", path, weights, bytes, size, full)
		}
		full = bytes
	}
}

// TestSplitReplaced: a split model replaces one of another size whole, and a directory of other GGUF files never.
func TestSplitReplaced(t *testing.T) {
	_, small := splitPlan(t, 3000)
	_, large := splitPlan(t, 20_000)
	dir := runTo(t, small, nil, "split")
	if _, err := large.Run(t.Context(), dir, RunOptions{}); err == nil || !strings.Contains(err.Error(), "the destination exists") {
		t.Errorf("got %v", err)
	}
	if _, err := large.Run(t.Context(), dir, RunOptions{Resume: true}); err == nil || !strings.Contains(err.Error(),
		"is not the finished result") {
		t.Errorf("got %v", err)
	}
	if _, err := large.Run(t.Context(), dir, RunOptions{Force: true}); err != nil || !sameTree(t, dir, runTo(t, large, nil, "again")) {
		t.Errorf("%s (%v)", names(t, dir), err)
	}
	writeText(t, filepath.Join(dir, "other.gguf"), "")
	if _, err := small.Run(t.Context(), dir, RunOptions{Force: true}); err == nil || !strings.Contains(err.Error(),
		"other.gguf is not part of a checkpoint") {
		t.Errorf("got %v", err)
	}
}

// TestSplitAgain: a file quantized from a split one has no keys of the old split. Splitting another convention is an error.
func TestSplitAgain(t *testing.T) {
	_, plan := splitPlan(t, 3000)
	src := openGGUF(t, runTo(t, plan, nil, "split"))
	again, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Convention: "gguf", Requantize: true, Rules: []Rule{{
		Pattern: regexp.MustCompile("attn_q"), Quantizer: quant.Quantizer{Format: quant.MXFP4}}}})
	if err == nil {
		again, err = again.Split(20_000)
	}
	f, err := gguf.Open(filepath.Join(runTo(t, again, err, "again"), again.Files()[0].Name))
	if err != nil || len(f.Parts()) != len(again.Files()) || f.Close() != nil {
		t.Errorf("%v", err)
	}
	other, err := PlanDequantize(t.Context(), src.Source, safetensors.F32)
	if err == nil {
		_, err = other.Split(1)
	}
	if err == nil || !strings.Contains(err.Error(), "only GGUF files are split") {
		t.Errorf("got %v", err)
	}
}

// TestSplitDamaged: verify names a tensor of a part whose bytes changed, and a merge the worker of a damaged part.
func TestSplitDamaged(t *testing.T) {
	_, plan := splitPlan(t, 3000)
	dir := runTo(t, plan, nil, "split")
	last := filepath.Join(dir, plan.Files()[len(plan.Files())-1].Name)
	damage(t, last)
	src := openGGUF(t, dir)
	if found, err := src.Source.Damaged(t.Context(), func(int64) {}); err != nil || len(found) != 1 {
		t.Errorf("damaged %v (%v)", found, err)
	}
	dst := filepath.Join(t.TempDir(), "merged")
	for i := range 2 {
		part, err := plan.Worker(i, 2)
		if err == nil {
			_, err = part.Run(t.Context(), dst, RunOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	damage(t, filepath.Join(partDir(dst, 1, 2), plan.Files()[len(plan.Files())-1].Name))
	if _, err := Merge(context.Background(), dst, RunOptions{Progress: func(verify.Progress) {}}); err == nil || !strings.Contains(err.Error(),
		"part of worker 1 of 2 is damaged") {
		t.Errorf("got %v", err)
	}
}

// TestSplitJoined: a file that gguf-split joins has the metadata of the first part alone, whose record is not of all tensors.
func TestSplitJoined(t *testing.T) {
	whole, plan := splitPlan(t, 3000)
	f, err := gguf.Open(filepath.Join(runTo(t, plan, nil, "split"), plan.Files()[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var specs []gguf.Spec
	for _, info := range f.Tensors {
		specs = append(specs, gguf.Spec{Name: info.Name, Type: info.Type, Shape: info.Shape})
	}
	for _, split := range []bool{true, false} {
		metadata := f.Metadata
		if split {
			metadata = append(slices.Clone(metadata), gguf.Pair{Key: "split.count", Value: uint16(0)})
		}
		l, err := gguf.NewLayout(specs, metadata)
		if err != nil {
			t.Fatal(err)
		}
		data := append(slices.Clone(l.HeaderBytes()), make([]byte, l.FileSize()-int64(len(l.HeaderBytes())))...)
		path := filepath.Join(t.TempDir(), "joined.gguf")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		joined := openGGUF(t, path)
		if found, err := joined.Source.Damaged(t.Context(), func(int64) {}); len(found) > 0 || (err == nil) != split {
			t.Errorf("joined by gguf-split: %v: damaged %v (%v)", split, found, err)
		}
	}
	if _, err := whole.Split(0); err != nil { // a weight a file
		t.Error(err)
	}
}

// damage changes a byte of the last tensor of a GGUF file.
func damage(t *testing.T, path string) {
	t.Helper()
	data := readFile(t, path)
	f, err := gguf.NewFile(strings.NewReader(string(data)), int64(len(data)), path)
	if err != nil {
		t.Fatal(err)
	}
	last := f.Tensors[len(f.Tensors)-1]
	data[int64(len(data))-padding(last.End)-1] ^= 1
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// padding returns the bytes after a tensor that ends at an offset.
func padding(end int64) int64 { return (32 - end%32) % 32 }
