package safetensors

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLayoutOrder(t *testing.T) {
	var specs []Spec
	var want []string
	for _, d := range Dtypes() {
		specs = append(specs, Spec{"b", d, []int64{4}}, Spec{"a", d, []int64{4}})
		for i := len(specs) - 2; i < len(specs); i++ {
			specs[i].Name += "." + d.String()
		}
		want = append(want, "b."+d.String(), "a."+d.String())
	}
	slices.Reverse(want) // by decreasing alignment, then by name
	l, err := NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range l.Tensors() {
		got = append(got, info.Name)
		if off, _ := l.Offset(info.Name); info.Dtype.Bits() >= 8 && off%int64(info.Dtype.Bits()/8) != 0 {
			t.Errorf("%s is at byte %d", info.Name, off)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("order\n%v, want\n%v", got, want)
	}
	slices.Reverse(specs)
	again, err := NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.HeaderBytes(), l.HeaderBytes()) {
		t.Error("the order of the specs changes the header")
	}
}

func TestLayoutEmpty(t *testing.T) {
	for _, metadata := range []map[string]string{nil, {}} {
		l, err := NewLayout(nil, metadata)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(l.HeaderBytes()), "\x08\x00\x00\x00\x00\x00\x00\x00{}      "; got != want || l.FileSize() != 16 {
			t.Errorf("%q, %d bytes; want %q", got, l.FileSize(), want)
		}
	}
}

func TestLayoutMetadata(t *testing.T) {
	metadata := map[string]string{"b": "1", "a\n\x1f\"": "é<", "C": `\`}
	l, err := NewLayout([]Spec{{"", I8, nil}}, metadata)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"__metadata__":{"C":"\\","a\n\u001f\"":"é<","b":"1"},"":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}`
	if got := strings.TrimRight(string(l.HeaderBytes()[lengthSize:]), " "); got != want {
		t.Errorf("header\n%s\nwant\n%s", got, want)
	}
	metadata["b"] = "2"
	if l.Metadata()["b"] != "1" {
		t.Error("the layout shares its caller's metadata")
	}
}

func TestLayoutLookup(t *testing.T) {
	l, err := NewLayout(goldenSpecs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, ok := l.Lookup("a.scale"); !ok || info.Begin != 4 || info.End != 7 {
		t.Errorf("a.scale: %+v, %v", info, ok)
	}
	if info, ok := l.Lookup("c"); ok {
		t.Errorf("c: %+v", info)
	}
	if off, ok := l.Offset("c"); ok || off != 0 {
		t.Errorf("c: offset %d", off)
	}
}

func TestLayoutErrors(t *testing.T) {
	one := []int64{1}
	for _, test := range []struct {
		name     string
		specs    []Spec
		metadata map[string]string
		want     string
	}{
		{"duplicate", []Spec{{"a", U8, one}, {"b", F32, one}, {"a", F32, one}}, nil, `tensor "a": the name appears twice: ` + fixTensor},
		{"reserved name", []Spec{{"__metadata__", U8, one}}, nil, `tensor "__metadata__": the name __metadata__ is reserved for the metadata: ` +
			fixTensor},
		{"NUL", []Spec{{"a\x00", U8, one}}, nil, `tensor "a\x00": the name contains a NUL character: ` + fixTensor},
		{"UTF-8", []Spec{{"a\xff", U8, one}}, nil, `tensor "a\xff": the name is not valid UTF-8: ` + fixTensor},
		{"no dtype", []Spec{{"a", 0, one}}, nil, `tensor "a": Dtype(0) is not a dtype: ` + fixTensor},
		{"dtype", []Spec{{"a", 23, one}}, nil, `tensor "a": Dtype(23) is not a dtype: ` + fixTensor},
		{"negative", []Spec{{"a", U8, []int64{2, -1}}}, nil, `tensor "a": shape [2 -1] has a negative dimension: ` + fixTensor},
		{"overflow", []Spec{{"a", U8, []int64{math.MaxInt64, 2}}}, nil, `tensor "a": shape [9223372036854775807 2] of U8 overflows 64 bits: ` +
			fixTensor},
		{"half a byte", []Spec{{"a", f6E2M3, []int64{2, 3}}}, nil, `tensor "a": shape [2 3] of F6_E2M3 is 36 bits, not a whole number of ` +
			`bytes: ` + fixTensor},
		{"sum overflow", []Spec{{"a", U8, []int64{1<<61 - 1}}, {"b", U8, []int64{1<<61 - 1}}, {"c", U8, []int64{1<<61 - 1}},
			{"d", U8, []int64{1<<61 - 1}}, {"e", U8, []int64{4}}}, nil,
			`tensor "e": the file would exceed 2^63-1 bytes: ` + fixTensor},
		{"file overflow", []Spec{{"a", U8, []int64{1<<61 - 1}}, {"b", U8, []int64{1<<61 - 1}}, {"c", U8, []int64{1<<61 - 1}},
			{"d", U8, []int64{1<<61 - 1}}}, nil,
			`the file would exceed 2^63-1 bytes: ` + fixTensor},
		{"metadata key", nil, map[string]string{"\xff": ""}, `metadata "\xff" is not valid UTF-8: leave it out`},
		{"metadata value", nil, map[string]string{"a": "\xed\xa0\x80"}, `metadata "a" is not valid UTF-8: leave it out`},
		{"too large", nil, map[string]string{"a": strings.Repeat("x", maxHeaderSize)},
			`the header has 100000032 bytes, more than the limit of 100000000: write fewer tensors or less metadata to a file`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewLayout(test.specs, test.metadata)
			if _, ok := errors.AsType[*ContainerError](err); !ok || err.Error() != test.want {
				t.Errorf("error\n  %v\nwant\n  %s", err, test.want)
			}
		})
	}
}
