package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// everyValue has values of each type, extreme ones included.
var everyValue = []Pair{
	{"general.architecture", "llama"},
	{"u8", uint8(255)}, {"i8", int8(-128)}, {"u16", uint16(65535)}, {"i16", int16(-32768)},
	{"u32", uint32(math.MaxUint32)}, {"i32", int32(math.MinInt32)}, {"u64", uint64(math.MaxUint64)}, {"i64", int64(math.MinInt64)},
	{"f32", float32(1e-45)}, {"f64", math.Inf(-1)}, {"true", true}, {"false", false}, {"empty", ""}, {"text", "Ġ\n\x00\xff"},
	{"u8s", []uint8{0, 255}}, {"i8s", []int8{-1}}, {"u16s", []uint16{1}}, {"i16s", []int16{-1}}, {"u32s", []uint32{1}},
	{"i32s", []int32{-1, 2}},
	{"u64s", []uint64{1}}, {"i64s", []int64{-1}}, {"f32s", []float32{1, -0.5}}, {"f64s", []float64{0.1}}, {"bools", []bool{true, false}},
	{"strings", []string{"", "a", "bc"}}, {"none", []string{}},
}

var everySpec = []Spec{
	{"blk.0.attn_q.weight", MXFP4, []int64{3, 64}},
	{"blk.0.attn_q.scale", F32, []int64{1}},
	{"scalar", F32, nil},
	{"experts", NVFP4, []int64{2, 3, 4, 128}},
	{"empty", BF16, []int64{0, 5}},
	{strings.Repeat("n", maxName), Q8_0, []int64{1, 32}},
}

// content is the data of a tensor in these tests.
func content(t TensorInfo) []byte {
	b := make([]byte, t.Bytes())
	for i := range b {
		b[i] = byte(i*7 + len(t.Name) + 1)
	}
	return b
}

func layOut(t *testing.T, specs []Spec, metadata []Pair) *Layout {
	t.Helper()
	l, err := NewLayout(specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// build writes a file of the layout.
func build(t *testing.T, l *Layout) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	data := make([]byte, l.FileSize())
	for _, info := range l.Tensors() {
		at, _ := l.Offset(info.Name)
		copy(data[at:], content(info))
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "never finished") {
		t.Errorf("an unfinished file opens: %v", err)
	}
	copy(data, l.HeaderBytes())
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoundTrip(t *testing.T) {
	for _, alignment := range []uint32{0, 1, 8, 32, 4096} {
		metadata := everyValue
		want := int64(defaultAlignment)
		if alignment > 0 {
			metadata = append(metadata[:len(metadata):len(metadata)], Pair{alignmentKey, alignment})
			want = int64(alignment)
		}
		l := layOut(t, everySpec, metadata)
		path := build(t, l)
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if !reflect.DeepEqual(f.Metadata, metadata) {
			t.Errorf("metadata %v, want %v", f.Metadata, metadata)
		}
		if f.Alignment != want || f.Size() != l.FileSize() || f.Size()%want != 0 {
			t.Errorf("alignment %d, size %d; want %d, %d", f.Alignment, f.Size(), want, l.FileSize())
		}
		if !reflect.DeepEqual(f.Tensors, l.Tensors()) {
			t.Errorf("tensors %v, want %v", f.Tensors, l.Tensors())
		}
		for i, s := range everySpec {
			info, ok := f.Lookup(s.Name)
			if !ok || info.Type != s.Type || !reflect.DeepEqual(info.Shape, s.Shape) || info.Begin%want != 0 || info.Name != f.Tensors[i].Name {
				t.Errorf("%v became %v", s, info)
			}
			got := make([]byte, info.Bytes())
			if err := f.ReadTensorAt(got, info, 0); err != nil || !bytes.Equal(got, content(info)) {
				t.Errorf("%s: other data (%v)", s.Name, err)
			}
			if off, ok := l.Offset(s.Name); !ok || off%want != 0 {
				t.Errorf("%s: offset %d", s.Name, off)
			}
		}
		if f.Value("u16") != uint16(65535) || f.Value("nothing") != nil {
			t.Error("Value finds something else")
		}
		if _, ok := f.Lookup("nothing"); ok {
			t.Error("Lookup finds a tensor that is not there")
		}
	}
}

// TestBytes compares with a small file written by hand from the description of the format.
func TestBytes(t *testing.T) {
	l := layOut(t, []Spec{{"ab", F32, []int64{1, 2}}}, []Pair{{"k", []int32{5}}, {alignmentKey, uint32(16)}})
	want := "GGUF" + "\x03\x00\x00\x00" + u64(1) + u64(2) +
		u64(1) + "k" + u32(9) + u32(5) + u64(1) + u32(5) +
		u64(17) + alignmentKey + u32(4) + u32(16) +
		u64(2) + "ab" + u32(2) + u64(2) + u64(1) + u32(0) + u64(0)
	want += strings.Repeat("\x00", (16-len(want)%16)%16)
	if got := string(l.HeaderBytes()); got != want {
		t.Errorf("header %q, want %q", got, want)
	}
	if l.FileSize() != int64(len(want))+16 {
		t.Errorf("size %d, want %d and a tensor padded to 16", l.FileSize(), len(want))
	}
}

func u32(v uint32) string { return string(binary.LittleEndian.AppendUint32(nil, v)) }
func u64(v uint64) string { return string(binary.LittleEndian.AppendUint64(nil, v)) }

// head is the start of a file.
func head(tensors, pairs uint64) string { return "GGUF" + u32(3) + u64(tensors) + u64(pairs) }

// entry is a tensor's info.
func entry(name string, ty Type, offset uint64, ne ...uint64) string {
	s := u64(uint64(len(name))) + name + u32(uint32(len(ne)))
	for _, n := range ne {
		s += u64(n)
	}
	return s + u32(uint32(ty)) + u64(offset)
}

func key(name string) string { return u64(uint64(len(name))) + name }

// pad pads a header to the alignment and adds n bytes of data.
func pad(s string, n int) string {
	return s + strings.Repeat("\x00", (32-len(s)%32)%32+n)
}

func TestBadFiles(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"empty":            {"", "byte 0: the file ends within the header"},
		"zeros":            {strings.Repeat("\x00", 64), "never finished"},
		"lfs":              {"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"},
		"other":            {"PK\x03\x04 and so on, for long enough", `begins with "PK\x03\x04", not with GGUF`},
		"version 1":        {"GGUF" + u32(1) + u64(0) + u64(0), "version 1 is not read"},
		"big-endian":       {"GGUF\x00\x00\x00\x03" + u64(0) + u64(0), "big-endian"},
		"negative":         {head(1<<63, 0), "negative number"},
		"pairs missing":    {head(0, 1), "byte 24: the file ends within the header"},
		"many pairs":       {head(0, 1<<40), "byte 24: the file ends within the header"},
		"many tensors":     {head(1<<40, 0), "the file ends within the header"},
		"empty key":        {head(0, 1) + u64(0) + u32(4) + u32(1), "a key is empty"},
		"NUL in a key":     {head(0, 1) + key("a\x00") + u32(4) + u32(1), "NUL"},
		"long key":         {head(0, 1) + key(strings.Repeat("k", maxKey)) + u32(4) + u32(1), "at most 65535"},
		"long string":      {head(0, 1) + u64(1<<50) + "abc", "a string of 1125899906842624 bytes ends after the end of the file"},
		"huge string":      {head(0, 1) + u64(1<<63) + "abc", "ends after the end of the file"},
		"equal keys":       {head(0, 2) + key("k") + u32(4) + u32(1) + key("k") + u32(4) + u32(1), `key "k": byte 41: the key appears twice`},
		"type of value":    {head(0, 1) + key("k") + u32(13), `key "k": byte 37: values of type 13`},
		"type of elements": {head(0, 1) + key("k") + u32(9) + u32(13) + u64(0), "type 13"},
		"nested":           {head(0, 1) + key("k") + u32(9) + u32(9) + u64(0), "array of arrays"},
		"long array":       {head(0, 1) + key("k") + u32(9) + u32(4) + u64(1<<62), "ends after the end of the file"},
		"bool":             {head(0, 1) + key("k") + u32(7) + "\x02", "a bool is 2"},
		"bools":            {head(0, 1) + key("k") + u32(9) + u32(7) + u64(1) + "\x02", "a bool is 2"},
		"alignment":        {head(0, 1) + key(alignmentKey) + u32(4) + u32(24), "the alignment is 24 (uint32)"},
		"alignment 0":      {head(0, 1) + key(alignmentKey) + u32(4) + u32(0), "the alignment is 0"},
		"alignment u64":    {head(0, 1) + key(alignmentKey) + u32(10) + u64(32), "(uint64)"},
		"no name":          {head(1, 0) + entry("", F32, 0, 1), "the name is empty"},
		"long name":        {head(1, 0) + entry(strings.Repeat("n", 64), F32, 0, 1), "at most 63"},
		"NUL in a name":    {head(1, 0) + entry("a\x00", F32, 0, 1), "NUL"},
		"dimensions":       {head(1, 0) + entry("t", F32, 0, 1, 1, 1, 1, 1), "5 dimensions"},
		"negative size":    {head(1, 0) + entry("t", F32, 0, 1<<63), "negative dimension"},
		"type":             {head(1, 0) + entry("t", 4, 0, 32), "type 4 is not known"},
		"overflow":         {head(1, 0) + entry("t", F32, 0, 1<<32, 1<<32), "overflows"},
		"bytes overflow":   {head(1, 0) + entry("t", F32, 0, 1<<62), "overflows"},
		"broken row":       {head(1, 0) + entry("t", NVFP4, 0, 32, 2), "rows of 32 elements are not whole blocks of NVFP4, which have 64"},
		"equal names":      {pad(head(2, 0)+entry("t", F32, 0, 8)+entry("t", F32, 32, 8), 64), `tensor "t": byte 57: the name appears twice`},
		"overlap": {pad(head(2, 0)+entry("t", F32, 0, 8)+entry("u", F32, 0, 8), 64),
			`tensor "u": it begins at byte 0 of the data, and the tensors before it end at 32`},
		"hole":              {pad(head(1, 0)+entry("t", F32, 32, 8), 64), "it begins at byte 32"},
		"truncated data":    {pad(head(1, 0)+entry("t", F32, 0, 8), 31), "the file ends before its data"},
		"sum overflows":     {pad(head(2, 0)+entry("t", 24, 0, 1<<62)+entry("u", 24, 1<<62, 1<<62), 0), "the file ends before its data"},
		"no data":           {head(1, 0) + entry("t", F32, 0, 8), "the file ends before its data"},
		"something follows": {pad(head(1, 0)+entry("t", F32, 0, 8), 33), "1 bytes follow the last tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFile(strings.NewReader(tc.file), int64(len(tc.file)), "m.gguf")
			e, ok := errors.AsType[*safetensors.ContainerError](err)
			if !ok || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "m.gguf: ") || e.Fix == "" ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("says %v, want %q in it", err, tc.want)
			}
		})
	}
}

// TestGoodFiles checks files that are just within the limits.
func TestGoodFiles(t *testing.T) {
	for name, file := range map[string]string{
		"nothing":       head(0, 0),
		"padded":        pad(head(0, 0), 0),
		"version 2":     "GGUF" + u32(2) + u64(0) + u64(0),
		"unpadded tail": pad(head(1, 0)+entry("t", F32, 0, 3), 12),
		"array of u16":  head(0, 1) + key("k") + u32(9) + u32(2) + u64(2) + "\x01\x00\x02\x00",
		"array of i16":  head(0, 1) + key("k") + u32(9) + u32(3) + u64(2) + "\x01\x00\x02\x00",
		"array of u32":  head(0, 1) + key("k") + u32(9) + u32(4) + u64(2) + u64(1),
		"array of i64":  head(0, 1) + key("k") + u32(9) + u32(11) + u64(1) + u64(1),
		"array of text": head(0, 1) + key("k") + u32(9) + u32(8) + u64(1) + u64(0),
		"empty tensors": pad(head(2, 0)+entry("t", F32, 0, 0)+entry("u", F32, 0, 0), 0),
	} {
		if _, err := NewFile(strings.NewReader(file), int64(len(file)), name); err != nil {
			t.Error(err)
		}
	}
}

func TestBadLayouts(t *testing.T) {
	for _, tc := range []struct {
		specs    []Spec
		metadata []Pair
		want     string
	}{
		{[]Spec{{"t", F32, nil}, {"t", F32, nil}}, nil, `tensor "t": the name appears twice`},
		{[]Spec{{"", F32, nil}}, nil, "the name is empty"},
		{[]Spec{{strings.Repeat("n", 64), F32, nil}}, nil, "64 bytes"},
		{[]Spec{{"t", F32, []int64{-1}}}, nil, "negative"},
		{[]Spec{{"t", F32, []int64{1, 1, 1, 1, 1}}}, nil, "5 dimensions"},
		{[]Spec{{"t", MXFP4, []int64{2, 48}}}, nil, "48 elements are not whole blocks of MXFP4"},
		{[]Spec{{"t", MXFP4, nil}}, nil, "not whole blocks"},
		{[]Spec{{"t", 99, nil}}, nil, "type 99"},
		{[]Spec{{"t", 24, []int64{math.MaxInt64}}, {"u", F32, []int64{1}}}, nil, "2^63"},
		{nil, []Pair{{"k", 1}}, `key "k": a value of type int`},
		{nil, []Pair{{"k", nil}}, "a value of type <nil>"},
		{nil, []Pair{{"k", [][]string{}}}, "[][]string"},
		{nil, []Pair{{"k", "a"}, {"k", "a"}}, "the key appears twice"},
		{nil, []Pair{{"", "a"}}, "empty"},
		{nil, []Pair{{alignmentKey, uint32(3)}}, "alignment is 3"},
	} {
		_, err := NewLayout(tc.specs, tc.metadata)
		if e, ok := errors.AsType[*safetensors.ContainerError](err); !ok || !strings.Contains(err.Error(), tc.want) || e.Fix == "" {
			t.Errorf("says %v, want %q in it", err, tc.want)
		}
	}
}

// failing is a file that cannot be read from a given byte on.
type failing struct {
	r    io.ReaderAt
	from int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, fmt.Errorf("the disk is on fire")
	}
	return f.r.ReadAt(p, off)
}

func TestReadFaults(t *testing.T) {
	file := pad(head(1, 0)+entry("t", F32, 0, 8), 32)
	if _, err := NewFile(failing{strings.NewReader(file), 10}, int64(len(file)), "m.gguf"); err == nil || !strings.Contains(err.Error(),
		"on fire") {
		t.Errorf("says %v", err)
	}
	f, err := NewFile(strings.NewReader(file), int64(len(file)), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	info := f.Tensors[0]
	f.r = strings.NewReader(file[:len(file)-5])
	if err := f.ReadTensorAt(make([]byte, 32), info, 0); err == nil || !strings.Contains(err.Error(), "ended 5 bytes early") {
		t.Errorf("says %v", err)
	}
	f.r = failing{strings.NewReader(file), 0}
	if err := f.ReadTensorAt(make([]byte, 32), info, 0); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("says %v", err)
	}
	for _, off := range []int64{-1, 1, 33} {
		if err := f.ReadTensorAt(make([]byte, 32), info, off); err == nil || !strings.Contains(err.Error(), "not inside") {
			t.Errorf("offset %d: says %v", off, err)
		}
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzNewFile checks that a file that is read is written with the same header, except for
// version and padding.
func FuzzNewFile(f *testing.F) {
	l, err := NewLayout(everySpec, everyValue)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(bytes.Clone(l.HeaderBytes()), make([]byte, l.FileSize()-int64(len(l.HeaderBytes())))...))
	f.Add([]byte(head(0, 1) + key("k") + u32(9) + u32(8) + u64(2) + key("a") + key("b")))
	f.Add([]byte(pad(head(1, 0)+entry("t", F32, 0, 8), 32)))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := NewFile(bytes.NewReader(file), int64(len(file)), "f")
		if err != nil {
			if _, ok := errors.AsType[*safetensors.ContainerError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		var specs []Spec
		for _, info := range got.Tensors {
			specs = append(specs, Spec{info.Name, info.Type, info.Shape})
			if err := got.ReadTensorAt(make([]byte, info.Bytes()), info, 0); err != nil {
				t.Fatal(err)
			}
		}
		l, err := NewLayout(specs, got.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		again := bytes.Clone(file)
		again[4] = currentVersion
		if n := end(l); !bytes.Equal(again[:n], l.HeaderBytes()[:n]) {
			t.Errorf("%x became %x", again[:n], l.HeaderBytes()[:n])
		}
	})
}

// end returns the offset at which the last tensor info of a layout ends.
func end(l *Layout) int {
	n := len(head(0, 0))
	for _, p := range l.header.Metadata {
		b, _ := appendPair(nil, p) // NewLayout took it
		n += len(b)
	}
	for _, t := range l.header.Tensors {
		n += len(appendTensor(nil, t))
	}
	return n
}
