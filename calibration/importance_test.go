package calibration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
)

// writeImportance writes a GGUF file of F32 tensors, by name and number of rows, and returns its path.
func writeImportance(t *testing.T, kind string, tensors map[string][][]float32) string {
	t.Helper()
	var specs []gguf.Spec
	for name, rows := range tensors {
		specs = append(specs, gguf.Spec{Name: name, Shape: []int64{int64(len(rows)), int64(len(rows[0]))}})
	}
	l, err := gguf.NewLayout(specs, []gguf.Pair{{Key: typeKey, Value: kind}, {Key: datasetsKey, Value: []string{"a.txt", "b.txt"}},
		{Key: chunksKey, Value: uint32(7)}})
	if err != nil {
		t.Fatal(err)
	}
	data := append(bytes.Clone(l.HeaderBytes()), make([]byte, l.FileSize()-int64(len(l.HeaderBytes())))...)
	for name, rows := range tensors {
		at, _ := l.Offset(name)
		for _, row := range rows {
			at += int64(copy(data[at:], floatBytes(row)))
		}
	}
	return writeFile(t, "m.gguf", data)
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// oldForm returns an entry of each name, of two columns, in the form before GGUF.
func oldForm(calls int32, a, b float32, names ...string) []byte {
	text := binary.LittleEndian.AppendUint32(nil, uint32(len(names)))
	for _, name := range names {
		text = append(binary.LittleEndian.AppendUint32(text, uint32(len(name))), name...)
		text = binary.LittleEndian.AppendUint32(text, uint32(calls))
		text = append(binary.LittleEndian.AppendUint32(text, 2), floatBytes([]float32{a, b})...)
	}
	return text
}

// TestImportance: the values of each expert are its sums by its count, or 1 without tokens; in the old form all are by the number of calls.
func TestImportance(t *testing.T) {
	path := writeImportance(t, "imatrix", map[string][][]float32{
		"blk.0.ffn_up_exps.weight.in_sum2": {{8, 2}, {5, 5}, {0, 3}, {1, 2}}, "blk.0.ffn_up_exps.weight.counts": {{4}, {0}, {3}, {.25}}})
	old := append(oldForm(4, 8, 2, "blk.0.attn_q.weight"), 9, 0, 0, 0, 1, 0, 0, 0, 'x')
	for _, c := range []struct {
		path, tensor string
		matrices     int
		want         [][]float32
		tokens       []int64
		record       []any
	}{
		{path, "blk.0.ffn_up_exps.weight", 4, [][]float32{{2, .5}, {1, 1}, {0, 1}, {4, 8}}, []int64{4, 0, 3, 1},
			[]any{"m.gguf", "a.txt", uint32(1), uint32(7)}},
		{writeFile(t, "a.dat", old), "blk.0.attn_q.weight", 1, [][]float32{{2, .5}}, []int64{4}, []any{"a.dat", "x", uint32(1), uint32(9)}},
		{writeFile(t, "b.dat", oldForm(0, 8, 2, "blk.0.attn_q.weight")), "blk.0.attn_q.weight", 1, [][]float32{{8, 2}}, []int64{1},
			[]any{"b.dat", uint32(1)}},
	} {
		if !IsFile(c.path) {
			t.Errorf("%s is not recognized", c.path)
		}
		s, err := Read(c.path)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			in, err := s.Importance(c.tensor, 2, c.matrices, i)
			if err != nil || !reflect.DeepEqual(in.Square, want) || in.Tokens != c.tokens[i] || in.HasHessian() {
				t.Errorf("%s, matrix %d: got %v, %d, %v", c.tensor, i, in, in.Tokens, err)
			}
		}
		var record []any
		for _, p := range s.Record() {
			record = append(record, p.Value)
		}
		if !reflect.DeepEqual(record, c.record) {
			t.Errorf("record %v, want %v", record, c.record)
		}
		if in, err := s.Importance("blk.1.attn_q.weight", 2, 1, 0); in != nil || err != nil {
			t.Errorf("a tensor without entry: %v, %v", in, err)
		}
		if _, err := s.Importance(c.tensor, 3, c.matrices, 0); err == nil || !strings.Contains(err.Error(), "another model") {
			t.Errorf("another width: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImportanceErrors: what is damaged is an error with the path, and no text of a calibration is an importance matrix.
func TestImportanceErrors(t *testing.T) {
	const sums, counts = "a.weight.in_sum2", "a.weight.counts"
	nan := float32(math.NaN())
	for want, tensors := range map[string]map[string][][]float32{
		"has .in_sum2 and no .counts": {sums: {{1, 2}}},
		"has .counts and no .in_sum2": {counts: {{1}}},
		"is NaN":                      {sums: {{1, nan}}, counts: {{1}}},
		"is -1":                       {sums: {{1, -1}}, counts: {{1}}},
		"is +Inf":                     {sums: {{1, float32(math.Inf(1))}}, counts: {{1}}},
		"count of matrix 0 is NaN":    {sums: {{1, 2}}, counts: {{nan}}},
		"count of matrix 0 is -2":     {sums: {{1, 2}}, counts: {{-2}}},
		"2 sums and 3 counts":         {sums: {{1, 2}}, counts: {{1}, {1}, {1}}},
		"no tensor NAME.in_sum2":      {"other": {{1}}},
	} {
		path := writeImportance(t, "imatrix", tensors)
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	model := writeImportance(t, "model", map[string][][]float32{"x": {{1}}})
	if _, err := Read(model); err == nil || !strings.Contains(err.Error(), `is "model"`) {
		t.Errorf("a model: %v", err)
	}
	whole := oldForm(1, 1, 2, "a.weight", "b.weight")
	for n := 16; n < len(whole); n++ {
		if _, err := Read(writeFile(t, "a.dat", whole[:n])); err == nil || !strings.Contains(err.Error(), "missing at its end") {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	for want, data := range map[string][]byte{
		"has two entries": oldForm(1, 1, 2, "a.weight", "a.weight"),
		"is NaN":          oldForm(1, nan, 2, "a.weight"),
		"-1 calls":        oldForm(-1, 1, 2, "a.weight"),
	} {
		if _, err := Read(writeFile(t, "a.dat", data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, text := range []string{"", "GG", "[input]\n\"a.weight\" = 1\n", `{"input": {"a.weight": 1}}`, "A text about a.weight."} {
		if path := writeFile(t, "a.toml", []byte(text)); IsFile(path) {
			t.Errorf("%q is an importance matrix", text)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", fmt.Sprint(err))
	}
}
