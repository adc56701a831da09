package safetensors

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestParseHeader(t *testing.T) {
	const text = " \n{\"x\\u0041\\ud83d\\ude00\\n\":\t{\"data_offsets\" : [0, 1],\r\"shape\":[ ],\"dtype\":\"U8\"}} \t\r\n"
	h, err := parse([]byte(text), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := &header{tensors: []TensorInfo{{Name: "xA😀\n", Dtype: U8, Shape: []int64{}, Begin: 0, End: 1}}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got %+v, want %+v", h, want)
	}
	if n := h.tensors[0].Elements(); n != 1 {
		t.Errorf("a scalar has %d elements", n)
	}
}

func TestParseHeaderNullMetadata(t *testing.T) {
	h, err := parse([]byte(`{"__metadata__":null}`), 0)
	if err != nil || h.metadata != nil {
		t.Errorf("got %+v, error %v", h, err)
	}
}

func TestParseHeaderEmptyTensors(t *testing.T) {
	const entry = `"%s":{"dtype":"%s","shape":[%d,0],"data_offsets":[%d,%d]}`
	text := "{" + fmt.Sprintf(entry, "z", "U8", 7, 0, 0) + "," + fmt.Sprintf(entry, "y", "F32", 2, 4, 4) + "," +
		`"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},` + fmt.Sprintf(entry, "b", "F32", 2, 4, 4) + `,"__metadata__":{}}`
	h, err := parse([]byte(text), 4)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, info := range h.tensors {
		order = append(order, info.Name)
	}
	if want := []string{"z", "a", "b", "y"}; !reflect.DeepEqual(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if h.metadata == nil {
		t.Error("empty metadata is not nil in the file")
	}
	if h.tensors[0].Elements() != 0 || h.tensors[0].Bytes() != 0 {
		t.Error("an empty tensor has elements")
	}
}

// badHeaders has a header for each fault, with its error.
var badHeaders = []struct {
	name   string
	json   string
	size   int64
	tensor string
	want   string // the whole error
}{
	// The reference reader's checks.
	{"empty", ``, 0, "", "byte 8: the header is empty: " + fixDamaged},
	{"utf8", "{\"a\xff\"}", 0, "", "byte 11: invalid UTF-8: " + fixDamaged},
	{"utf8 cut", "{\"a\xe2\x82", 0, "", "byte 11: invalid UTF-8: " + fixDamaged},
	{"not json", `PK`, 0, "", "byte 8: invalid JSON: found 'P', expected '{': " + fixDamaged},
	{"not an object", `[]`, 0, "", "byte 8: invalid JSON: found '[', expected '{': " + fixDamaged},
	{"only spaces", `   `, 0, "", "byte 11: invalid JSON: found the end, expected '{': " + fixDamaged},
	{"unfinished", `{"a"`, 0, "", "byte 12: invalid JSON: found the end, expected ':': " + fixDamaged},
	{"unfinished string", `{"a\"`, 0, "", "byte 9: invalid JSON: the string that starts here never ends: " + fixDamaged},
	{"trailing", `{} x`, 0, "", "byte 11: invalid JSON: found 'x' after the closing brace: " + fixDamaged},
	{"second object", `{}{}`, 0, "", "byte 10: invalid JSON: found '{' after the closing brace: " + fixDamaged},
	{"NUL padding", "{}\x00\x00", 0, "", `byte 10: invalid JSON: found '\x00' after the closing brace: ` + fixDamaged},
	{"trailing comma", `{"__metadata__":{},}`, 0, "", "byte 27: invalid JSON: found '}', expected a string: " + fixDamaged},
	{"control character", "{\"a\n\":1}", 0, "", `byte 11: invalid JSON: control character '\n' in a string: ` + fixDamaged},
	{"bad escape", `{"\x":1}`, 0, "", "byte 10: invalid JSON: bad escape in a string: " + fixDamaged},
	{"bad hex escape", `{"\u12g4":1}`, 0, "", "byte 10: invalid JSON: bad escape in a string: " + fixDamaged},
	{"signed hex escape", `{"\u+123":1}`, 0, "", "byte 10: invalid JSON: bad escape in a string: " + fixDamaged},
	{"lone surrogate", `{"\ud800":1}`, 0, "", "byte 10: invalid JSON: half a surrogate pair in a string: " + fixDamaged},
	{"wrong pair", `{"\ud800\u0041":1}`, 0, "", "byte 10: invalid JSON: half a surrogate pair in a string: " + fixDamaged},
	{"deep", `{"a":` + strings.Repeat(`[`, 1<<20), 0, "a", `tensor "a": byte 13: the entry is not an object: ` + fixDamaged},
	{"deep in shape", `{"a":{"shape":` + strings.Repeat(`[`, 1<<20), 0, "a",
		`tensor "a": byte 23: a dimension of the shape is not a number (found '['): ` + fixDamaged},
	{"deep in unknown key", `{"a":{"x":` + strings.Repeat(`{"x":`, 1<<20), 0, "a", `tensor "a": byte 14: unknown key "x": ` + fixDamaged},
	{"entry", `{"a":null}`, 0, "a", `tensor "a": byte 13: the entry is not an object: ` + fixDamaged},
	{"dtype type", `{"a":{"dtype":7}}`, 0, "a", `tensor "a": byte 22: dtype is not a string: ` + fixDamaged},
	{"dtype unknown", entry("a", "F5", "1", "0,1"), 1, "a", `tensor "a": byte 22: unknown dtype "F5" (known: ` + dtypeNames() +
		`): this file needs a newer reader, or is damaged`},
	{"dtype missing", `{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1, "a", `tensor "a": byte 9: dtype is missing: ` + fixDamaged},
	{"shape type", `{"a":{"shape":1}}`, 1, "a", `tensor "a": byte 22: shape is not an array: ` + fixDamaged},
	{"shape missing", `{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1, "a", `tensor "a": byte 9: shape is missing: ` + fixDamaged},
	{"shape trailing comma", entry("a", "U8", "1,", "0,1"), 1, "a", `tensor "a": byte 38: a dimension of the shape is not a number ` +
		`(found ']'): ` + fixDamaged},
	{"shape negative", entry("a", "U8", "-1", "0,1"), 1, "a", `tensor "a": byte 36: a dimension of the shape is "-1", expected a whole ` +
		`number that is not negative: ` + fixDamaged},
	{"shape fraction", entry("a", "U8", "1.0", "0,1"), 1, "a", `tensor "a": byte 36: a dimension of the shape is "1.0", expected a whole ` +
		`number that is not negative: ` + fixDamaged},
	{"shape octal", entry("a", "U8", "01", "0,1"), 1, "a", `tensor "a": byte 37: invalid JSON: found '1', expected ']': ` + fixDamaged},
	{"offsets missing", `{"a":{"dtype":"U8","shape":[1]}}`, 1, "a", `tensor "a": byte 9: data_offsets is missing: ` + fixDamaged},
	{"offsets type", `{"a":{"data_offsets":{}}}`, 1, "a", `tensor "a": byte 29: data_offsets is not an array: ` + fixDamaged},
	{"one offset", entry("a", "U8", "1", "0"), 1, "a", `tensor "a": byte 54: data_offsets has 1 numbers, expected 2: ` + fixDamaged},
	{"three offsets", entry("a", "U8", "1", "0,1,2"), 1, "a", `tensor "a": byte 54: data_offsets has 3 numbers, expected 2: ` + fixDamaged},
	{"first not at 0", entry("a", "U8", "1", "1,2"), 2, "a", `tensor "a": byte 9: data starts at byte 1 of the data buffer, expected 0 ` +
		`(hole between tensors): ` + fixDamaged},
	{"hole", entry("a", "U8", "2", "0,2", "b", "U8", "1", "3,4"), 4, "b", `tensor "b": byte 61: data starts at byte 3 of the data buffer, ` +
		`expected 2 (hole between tensors): ` + fixDamaged},
	{"overlap", entry("a", "U8", "2", "0,2", "b", "U8", "2", "1,3"), 3, "b",
		`tensor "b": byte 61: data starts at byte 1 of the data buffer, expected 2 (overlaps another tensor): ` + fixDamaged},
	{"same bytes", entry("a", "U8", "2", "0,2", "b", "U8", "2", "0,2"), 2, "b",
		`tensor "b": byte 61: data starts at byte 0 of the data buffer, expected 2 (overlaps another tensor): ` + fixDamaged},
	{"backwards", entry("a", "U8", "2", "0,2", "b", "U8", "1", "2,1"), 2, "b",
		`tensor "b": byte 61: data ends at byte 1 of the data buffer, before it starts at 2: ` + fixDamaged},
	{"shape overflow", entry("a", "U8", "4611686018427387904,5,0", "0,0"), 0, "a",
		`tensor "a": byte 9: shape [4611686018427387904 5 0] of U8 overflows 64 bits: ` + fixDamaged},
	{"bits overflow", entry("a", "F32", "1152921504606846976", "0,0"), 0, "a",
		`tensor "a": byte 9: shape [1152921504606846976] of F32 overflows 64 bits: ` + fixDamaged},
	{"long shape overflow", entry("a", "U8", "4294967296,4294967296,1,1,1,1,1,1,1", "0,0"), 0, "a",
		`tensor "a": byte 9: shape [4294967296 4294967296 1 1 1 1 1 1 …] (9 dimensions) of U8 overflows 64 bits: ` + fixDamaged},
	{"half a byte", entry("a", "F4", "3", "0,2"), 2, "a", `tensor "a": byte 9: shape [3] of F4 is 12 bits, not a whole number of bytes: ` +
		fixDamaged},
	{"half a byte of F6", entry("a", "F6_E3M2", "1,2", "0,2"), 2, "a", `tensor "a": byte 9: shape [1 2] of F6_E3M2 is 12 bits, not a ` +
		`whole number of bytes: ` + fixDamaged},
	{"too few bytes", entry("a", "F32", "2,3", "0,20"), 20, "a", `tensor "a": byte 9: data has 20 bytes, but shape [2 3] of F32 needs 24: ` +
		fixDamaged},
	{"too many bytes", entry("a", "F32", "", "0,8"), 8, "a", `tensor "a": byte 9: data has 8 bytes, but shape [] of F32 needs 4: ` +
		fixDamaged},
	{"truncated", entry("a", "U8", "9", "0,9"), 4, "a", `tensor "a": byte 65: the file ends 5 bytes before the last tensor does: ` +
		fixTruncated},
	{"trailing bytes", entry("a", "U8", "9", "0,9"), 11, "", `byte 70: 2 bytes follow the last tensor: ` + fixDamaged},
	{"trailing bytes only", `{}`, 1, "", `byte 10: 1 bytes follow the last tensor: ` + fixDamaged},
	{"metadata list", `{"__metadata__":[]}`, 0, "", "byte 24: __metadata__ is not an object of strings: " + fixDamaged},
	{"metadata word", `{"__metadata__":nil}`, 0, "", "byte 24: invalid JSON: found 'n', expected a value: " + fixDamaged},
	{"metadata number", `{"__metadata__":{"a":1}}`, 0, "", `byte 29: __metadata__: the value of "a" is not a string: ` + fixDamaged},
	{"metadata object", `{"__metadata__":{"a":{}}}`, 0, "", `byte 29: __metadata__: the value of "a" is not a string: ` + fixDamaged},

	// Ours.
	{"two tensors of a name", entry("a", "U8", "1", "0,1", "a", "U8", "1", "1,2"), 2, "", `byte 61: key "a" appears twice: ` + fixDamaged},
	{"two by escape", entry("a", "U8", "1", "0,1", `\u0061`, "U8", "1", "1,2"), 2, "", `byte 61: key "a" appears twice: ` + fixDamaged},
	{"two metadata", `{"__metadata__":{},"__metadata__":{}}`, 0, "", `byte 27: key "__metadata__" appears twice: ` + fixDamaged},
	{"two metadata keys", `{"__metadata__":{"a":"","a":""}}`, 0, "", `byte 32: key "a" appears twice: ` + fixDamaged},
	{"two dtypes", `{"a":{"dtype":"U8","dtype":"U8"}}`, 0, "a", `tensor "a": byte 27: key "dtype" appears twice: ` + fixDamaged},
	{"unknown key", `{"a":{"dtype":"U8","strides":[1]}}`, 0, "a", `tensor "a": byte 27: unknown key "strides": ` + fixDamaged},
	{"tensor named metadata", entry("__metadata__", "U8", "1", "0,1"), 1, "", `byte 46: __metadata__: the value of "shape" is not a string: ` +
		fixDamaged},
	{"NUL in name", entry(`a\u0000b`, "U8", "1", "0,1"), 1, "a\x00b", `tensor "a\x00b": byte 9: the name contains a NUL character: ` +
		fixDamaged},
	{"offset negative", entry("a", "U8", "1", "-1,0"), 0, "a", `tensor "a": byte 55: a data offset is "-1", expected a whole number that ` +
		`is not negative: ` + fixDamaged},
	{"offset minus zero", entry("a", "U8", "1", "-0,1"), 0, "a", `tensor "a": byte 55: a data offset is "-0", expected a whole number ` +
		`that is not negative: ` + fixDamaged},
	{"offset fraction", entry("a", "U8", "1", "0.5,1"), 1, "a", `tensor "a": byte 55: a data offset is "0.5", expected a whole number ` +
		`that is not negative: ` + fixDamaged},
	{"offset exponent", entry("a", "U8", "1", "0,1e0"), 1, "a", `tensor "a": byte 57: a data offset is "1e0", expected a whole number ` +
		`that is not negative: ` + fixDamaged},
	{"offset string", entry("a", "U8", "1", `"0",1`), 1, "a", `tensor "a": byte 55: a data offset is not a number (found '"'): ` + fixDamaged},
	{"offset 2^63", entry("a", "U8", "1", "0,9223372036854775808"), 1, "a", `tensor "a": byte 57: a data offset is "9223372036854775808", ` +
		`which exceeds 2^63-1: ` + fixDamaged},
	{"dimension 2^63", entry("a", "U8", "9223372036854775808", "0,1"), 1, "a",
		`tensor "a": byte 36: a dimension of the shape is "9223372036854775808", which exceeds 2^63-1: ` + fixDamaged},
	{"dimension 2^64+1", entry("a", "U8", "18446744073709551617", "0,1"), 1, "a",
		`tensor "a": byte 36: a dimension of the shape is "18446744073709551617", which exceeds 2^63-1: ` + fixDamaged},
	{"negative data", `{}`, -1, "", "no file has a data buffer of -1 bytes"},
	{"impossible data", `{}`, math.MaxInt64 - 9, "", "no file has a data buffer of 9223372036854775798 bytes"},
	{"long name", entry(strings.Repeat("é", 5000), "U8", "1", "1,2"), 2, strings.Repeat("é", 5000),
		`tensor "` + strings.Repeat("é", 60) + `"…: byte 9: data starts at byte 1 of the data buffer, expected 0 (hole between tensors): ` +
			fixDamaged},
}

// entry returns a header of tensors, each given as name, dtype, shape and offsets.
func entry(fields ...string) string {
	var entries []string
	for ; len(fields) > 0; fields = fields[4:] {
		entries = append(entries, fmt.Sprintf(`"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s]}`, fields[0], fields[1], fields[2], fields[3]))
	}
	return "{" + strings.Join(entries, ",") + "}"
}

func TestParseHeaderErrors(t *testing.T) {
	for _, test := range badHeaders {
		t.Run(test.name, func(t *testing.T) {
			h, err := parse([]byte(test.json), test.size)
			fault, ok := errors.AsType[*ContainerError](err)
			if !ok {
				t.Fatalf("got %+v, error %v, want a ContainerError", h, err)
			}
			if err.Error() != test.want {
				t.Errorf("error\n  %s\nwant\n  %s", err, test.want)
			}
			if fault.Tensor != test.tensor {
				t.Errorf("tensor %q, want %q", fault.Tensor, test.tensor)
			}
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("error %q is not a line", err)
			}
		})
	}
}

// TestParseHeaderPrefixes checks that every proper prefix of a valid header is invalid, for
// any size of the data.
func TestParseHeaderPrefixes(t *testing.T) {
	text := entry("a", "F32", "2,3", "0,24", `b\n`, "F4", "8", "24,28")
	if _, err := parse([]byte(text), 28); err != nil {
		t.Fatal(err)
	}
	for n := range len(text) {
		if h, err := parse([]byte(text[:n]), 28); err == nil {
			t.Errorf("the first %d bytes parse as %+v", n, h)
		}
	}
}

func TestParseHeaderLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 200 MB of memory; run without -short")
	}
	json := []byte("{}" + strings.Repeat(" ", maxHeaderSize-1))
	if _, err := parse(json[:maxHeaderSize], 0); err != nil {
		t.Errorf("a header of the largest size: %v", err)
	}
	_, err := parse(json, 0)
	const want = "byte 0: the header has 100000001 bytes, more than the limit of 100000000: " + fixForeign
	if err == nil || err.Error() != want {
		t.Errorf("a larger one: error %v, want %s", err, want)
	}
}

// manyTensors lays out a model of n tensors.
func manyTensors(tb testing.TB, n int) *Layout {
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{Name: fmt.Sprintf("model.layers.%d.mlp.experts.%d.down_proj.weight", i/256, i%256), Dtype: BF16,
			Shape: []int64{7168, 2048}}
	}
	l, err := NewLayout(specs, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func TestParseHeaderLarge(t *testing.T) {
	l := manyTensors(t, 100_000)
	h, err := parse(l.HeaderBytes()[lengthSize:], l.dataSize())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, l.header) {
		t.Error("the parsed header differs from the layout's")
	}
}

func BenchmarkParseHeader(b *testing.B) {
	l := manyTensors(b, 100_000)
	json := l.HeaderBytes()[lengthSize:]
	b.SetBytes(int64(len(json)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parse(json, l.dataSize()); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParseHeader checks that a header which parses can be laid out again and
// then parses into the same tensors.
func FuzzParseHeader(f *testing.F) {
	for _, test := range badHeaders {
		if len(test.json) < 1000 {
			f.Add([]byte(test.json), test.size)
		}
	}
	f.Add([]byte(`{}      `), int64(0))
	f.Add([]byte(`{"__metadata__":null}`), int64(0))
	f.Add([]byte(`{"__metadata__":{"format":"pt","\u0000":"\u0000"}}`), int64(0))
	f.Add([]byte(entry("b", "U8", "3", "0,3", "a", "F32", "", "3,7", "", "F4", "0,3", "3,3", "c", "F6_E2M3", "4", "7,10")), int64(10))
	f.Fuzz(func(t *testing.T, json []byte, size int64) {
		h, err := parse(json, size)
		if err != nil {
			if _, ok := errors.AsType[*ContainerError](err); !ok || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %q", err)
			}
			return
		}
		if size > math.MaxInt64/2 {
			return // a longer header may not fit in front of so much data
		}
		var total int64
		specs := make([]Spec, len(h.tensors))
		for i, info := range h.tensors {
			specs[i] = Spec{info.Name, info.Dtype, info.Shape}
			total += info.Bytes()
		}
		if total != size {
			t.Fatalf("tensors have %d bytes of %d", total, size)
		}
		l, err := NewLayout(specs, h.metadata)
		if err != nil {
			t.Fatalf("layout of a valid header: %v", err)
		}
		again, err := parse(l.HeaderBytes()[lengthSize:], size)
		if err != nil {
			t.Fatalf("layout gave an invalid header: %v", err)
		}
		if !reflect.DeepEqual(again, l.header) {
			t.Fatalf("parsed %+v, laid out %+v", again, l.header)
		}
		if len(again.tensors) != len(h.tensors) {
			t.Fatalf("%d tensors became %d", len(h.tensors), len(again.tensors))
		}
		for _, info := range h.tensors {
			same, ok := l.Lookup(info.Name)
			if !ok || same.Dtype != info.Dtype || !reflect.DeepEqual(same.Shape, info.Shape) || same.Bytes() != info.Bytes() {
				t.Fatalf("%+v became %+v", info, same)
			}
		}
		if len(h.metadata)+len(again.metadata) > 0 && !reflect.DeepEqual(h.metadata, again.metadata) {
			t.Fatalf("metadata %v became %v", h.metadata, again.metadata)
		}
	})
}

// parse is parseHeader without the index of names.
func parse(json []byte, dataSize int64) (*header, error) {
	h, _, err := parseHeader(json, dataSize)
	if err != nil {
		return nil, err // not returned directly: err is a typed pointer
	}
	return h, nil
}
