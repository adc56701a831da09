package convert_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestPatch: a patch changes what it names, and nothing else; a finished run is recognized, one of another patch is not.
func TestPatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "src")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	layout, err := safetensors.NewLayout([]safetensors.Spec{
		{Name: "a", Dtype: safetensors.U8, Shape: []int64{2, 4}}, {Name: "b", Dtype: safetensors.F32, Shape: []int64{1}},
		{Name: "c", Dtype: safetensors.BF16, Shape: []int64{3}},
	}, map[string]string{"format": "mine", "key": "value"})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, layout.FileSize()-int64(len(layout.HeaderBytes())))
	for i := range data {
		data[i] = byte(i)
	}
	for name, content := range map[string][]byte{"model.safetensors": append(layout.HeaderBytes(), data...), hf.ConfigName: []byte(`{"a": 1}`),
		"hf_quant_config.json": []byte(`{}`), "tokenizer.json": []byte(`{"b": 2}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var plusOne [256]byte
	for i := range plusOne {
		plusOne[i] = byte(i + 1)
	}
	number := binary.LittleEndian.AppendUint32(nil, 7)
	stored := checkpoint.Stored{Part: checkpoint.Input, Value: number}
	stored.Name, stored.Dtype, stored.Shape = "b", safetensors.F32, []int64{1}
	added := stored
	added.Name = "d"
	patch := convert.Patch{Shapes: map[string][]int64{"a": {2, 1, 4}}, Bytes: map[string]*[256]byte{"a": &plusOne},
		Beside: map[string][]checkpoint.Stored{"c": {stored, added}}, Config: []byte(`{"a": 3}`),
		Files: []checkpoint.File{{Name: "hf_quant_config.json", Data: []byte(`{"c": 4}`)}}}
	run := func(patch convert.Patch, dst string) error {
		plan, err := convert.PlanPatch(t.Context(), source, patch)
		if err != nil {
			return err
		}
		_, err = plan.Run(t.Context(), dst, convert.RunOptions{Resume: true, AllowNonFinite: true})
		return err
	}
	dst := filepath.Join(t.TempDir(), "dst")
	for range 2 { // the second run finds the result of the first
		if err := run(patch, dst); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(convert.Patch{Config: []byte(`{"a": 5}`)}, dst); err == nil {
		t.Error("the result of another patch is accepted")
	}
	got, err := safetensors.Open(filepath.Join(dst, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	before, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	read := func(f *safetensors.File, name string) []byte {
		info, ok := f.Lookup(name)
		if !ok {
			t.Fatalf("%s is missing", name)
		}
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Fatal(err)
		}
		return data
	}
	changed := read(before, "a")
	for i := range changed {
		changed[i]++
	}
	if a, _ := got.Lookup("a"); len(a.Shape) != 3 || !bytes.Equal(read(got, "a"), changed) || !bytes.Equal(read(got, "b"), number) ||
		!bytes.Equal(read(got, "d"), number) || !bytes.Equal(read(got, "c"), read(before, "c")) {
		t.Errorf("tensors %v, a %v", got.Tensors(), read(got, "a"))
	}
	if m := got.Metadata(); m["format"] != "mine" || m["key"] != "value" {
		t.Errorf("metadata %v", m)
	}
	for name, want := range map[string]string{hf.ConfigName: `{"a": 3}`, "hf_quant_config.json": `{"c": 4}`, "tokenizer.json": `{"b": 2}`} {
		if data, err := os.ReadFile(filepath.Join(dst, name)); err != nil || string(data) != want {
			t.Errorf("%s is %s (%v)", name, data, err)
		}
	}
	for _, wrong := range []convert.Patch{
		{Beside: map[string][]checkpoint.Stored{"z": {stored}}},
		{Shapes: map[string][]int64{"z": {1}}},
		{Names: map[string]string{"z": "a"}},
		{Shapes: map[string][]int64{"a": {2, 3}}},
		{Bytes: map[string]*[256]byte{"z": &plusOne}},
	} {
		if err := run(wrong, dst+"2"); err == nil || !strings.Contains(err.Error(), "patch: ") {
			t.Errorf("%+v: error %v", wrong, err)
		}
	}
}

// TestPatchCopies: the other checkpoint identifies a run as the source does.
func TestPatchCopies(t *testing.T) {
	write := func(dir, name string, value byte) *hf.Checkpoint {
		layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: name, Dtype: safetensors.U8, Shape: []int64{2}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		data := append(layout.HeaderBytes(), value, value)
		for file, content := range map[string][]byte{"model.safetensors": data, hf.ConfigName: []byte(`{}`)} {
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		c, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	source, other, dst := write(t.TempDir(), "a", 1), t.TempDir(), filepath.Join(t.TempDir(), "dst")
	run := func(ctx context.Context, original *hf.Checkpoint, dst string, progress func(verify.Progress)) error {
		plan, err := convert.PlanPatch(t.Context(), source, convert.Patch{Copied: checkpoint.Read(original).Raw()})
		if err != nil {
			t.Fatal(err)
		}
		_, err = plan.Run(ctx, dst, convert.RunOptions{Resume: true, Threads: 1, Progress: progress})
		return err
	}
	original := write(other, "b", 2)
	for range 2 {
		if err := run(t.Context(), original, dst, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := run(ctx, original, dst+"2", func(verify.Progress) { cancel() }); err == nil {
		t.Fatal("the run was not interrupted")
	}
	if err := run(t.Context(), write(other, "b", 3), dst+"2", nil); !errors.Is(err, convert.ErrChanged) {
		t.Errorf("another original: %v", err)
	}
}
