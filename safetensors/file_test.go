package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// readDump returns the bytes of a labeled dump: hexadecimal or a quoted string before each
// bar, an offset after it. It fails if an offset is wrong.
func readDump(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		bar := strings.LastIndex(line, "|")
		data, label := strings.TrimSpace(line[:bar]), strings.Fields(line[bar+1:])
		if label[0] != strconv.Itoa(len(out)) {
			t.Fatalf("%s: %q is at %d", path, line, len(out))
		}
		if s, err := strconv.Unquote(data); err == nil {
			out = append(out, s...)
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(data, " ", ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		out = append(out, b...)
	}
	return out
}

const goldenDump = "testdata/two_tensors.dump"

var goldenSpecs = []Spec{{"a.scale", U8, []int64{3}}, {"b.weight", BF16, []int64{2, 1}}}

func TestGoldenWrite(t *testing.T) {
	want := readDump(t, goldenDump)
	l, err := NewLayout(goldenSpecs, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	w, err := Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, "a.scale", []byte{0x7f, 0x80, 0xff}, 0)
	write(t, w, "b.weight", []byte{0, 0xc0}, 2)
	write(t, w, "b.weight", []byte{0x80, 0x3f}, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
}

func TestGoldenRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, readDump(t, goldenDump), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Name() != path || f.Size() != 175 || f.dataStart != 168 {
		t.Errorf("name %s, size %d, data at %d", f.Name(), f.Size(), f.dataStart)
	}
	if want := map[string]string{"format": "pt"}; !reflect.DeepEqual(f.Metadata(), want) {
		t.Errorf("metadata %v, want %v", f.Metadata(), want)
	}
	want := []TensorInfo{{"b.weight", BF16, []int64{2, 1}, 0, 4}, {"a.scale", U8, []int64{3}, 4, 7}}
	if !reflect.DeepEqual(f.Tensors(), want) {
		t.Errorf("tensors %+v, want %+v", f.Tensors(), want)
	}
	if info, ok := f.Lookup("a.scale"); !ok || !reflect.DeepEqual(info, want[1]) {
		t.Errorf("Lookup: %+v, %v", info, ok)
	}
	if info, ok := f.Lookup("c"); ok {
		t.Errorf("Lookup found %+v", info)
	}
	got := make([]byte, 2)
	if err := f.ReadTensorAt(got, want[1], 1); err != nil || !bytes.Equal(got, []byte{0x80, 0xff}) {
		t.Errorf("read % x, error %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.ReadTensorAt(got, want[1], 1); !errors.Is(err, os.ErrClosed) || !strings.HasPrefix(err.Error(),
		path+`: tensor "a.scale": byte 173: `) {
		t.Errorf("reading a closed file: %v", err)
	}
}

// TestOpenCut checks that Open rejects every truncation of a file, and an extra byte.
func TestOpenCut(t *testing.T) {
	data := readDump(t, goldenDump)
	for n := range data {
		_, err := NewFile(bytes.NewReader(data[:n]), int64(n), "cut.safetensors")
		fault, ok := errors.AsType[*ContainerError](err)
		if !ok || fault.Path != "cut.safetensors" || fault.Offset != int64(n) || fault.Fix != fixTruncated {
			t.Errorf("%d bytes: error %v, want one with the truncation at byte %d", n, err, n)
		}
	}
	long := append(bytes.Clone(data), 0)
	_, err := NewFile(bytes.NewReader(long), int64(len(long)), "long.safetensors")
	const want = "long.safetensors: byte 175: 1 bytes follow the last tensor: " + fixDamaged
	if err == nil || err.Error() != want {
		t.Errorf("a byte more: error %v, want %s", err, want)
	}
}

func TestOpenErrors(t *testing.T) {
	withLength := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "byte 0: the file has 0 bytes, fewer than the 8 of the header's length: " + fixTruncated},
		{"seven bytes", make([]byte, 7), "byte 7: the file has 7 bytes, fewer than the 8 of the header's length: " + fixTruncated},
		{"no header", withLength(0, ""), "byte 0: the header's length is 0: the file was never finished; write or fetch it again"},
		{"header too large", withLength(maxHeaderSize+1, ""), "byte 0: the header has 100000001 bytes, more than the limit of 100000000: " +
			fixForeign},
		{"header of 2^64-1", withLength(1<<64-1, "{}"), "byte 0: the header has 18446744073709551615 bytes, more than the limit of 100000000: " +
			fixForeign},
		{"header after the end", withLength(3, "{}"), "byte 10: the header ends at byte 11, after the end of the file: " + fixTruncated},
		{"git lfs", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
			"byte 0: this is a Git LFS pointer, not the file it points to: run git lfs pull, or fetch the file itself"},
		{"bad header", withLength(2, "[]"), "byte 8: invalid JSON: found '[', expected '{': " + fixDamaged},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			if err := os.WriteFile(path, test.data, 0o666); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if err == nil {
				t.Fatalf("opened %+v", f.Tensors())
			}
			if want := path + ": " + test.want; err.Error() != want {
				t.Errorf("error\n  %s\nwant\n  %s", err, want)
			}
		})
	}
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || err.Error() != dir+": not a regular file: name a file" {
		t.Errorf("opening a directory: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening nothing: %v", err)
	}
}

func TestReadTensorAtErrors(t *testing.T) {
	data := readDump(t, goldenDump)
	f, err := NewFile(bytes.NewReader(data), int64(len(data)), "x.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := f.Lookup("a.scale")
	for _, test := range []struct {
		info TensorInfo
		n    int
		off  int64
		want string // empty for none
	}{
		{a, 3, 0, ""},
		{a, 0, 3, ""},
		{a, 4, 0, `x.safetensors: tensor "a.scale": 4 bytes at 0 are not inside its 3 bytes`},
		{a, 1, 3, `x.safetensors: tensor "a.scale": 1 bytes at 3 are not inside its 3 bytes`},
		{a, 0, 4, `x.safetensors: tensor "a.scale": 0 bytes at 4 are not inside its 3 bytes`},
		{a, 1, -1, `x.safetensors: tensor "a.scale": 1 bytes at -1 are not inside its 3 bytes`},
		{a, 1, 1<<63 - 1, `x.safetensors: tensor "a.scale": 1 bytes at 9223372036854775807 are not inside its 3 bytes`},
		{TensorInfo{Name: "z", Begin: 4, End: 8}, 1, 0, `x.safetensors: tensor "z": bytes 4 to 8 are not in the data buffer of 7 bytes: the ` +
			`tensor is of another file`},
		{TensorInfo{Name: "z", Begin: -1, End: 8}, 1, 0, `x.safetensors: tensor "z": bytes -1 to 8 are not in the data buffer of 7 bytes: ` +
			`the tensor is of another file`},
	} {
		err := f.ReadTensorAt(make([]byte, test.n), test.info, test.off)
		if got := fmt.Sprint(err); (err == nil) != (test.want == "") || err != nil && got != test.want {
			t.Errorf("%d bytes at %d of %s: error %v, want %q", test.n, test.off, test.info.Name, err, test.want)
		}
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing what was not opened: %v", err)
	}
}

func TestFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, readDump(t, goldenDump), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 173); err != nil {
		t.Fatal(err)
	}
	a, _ := f.Lookup("a.scale")
	err = f.ReadTensorAt(make([]byte, 3), a, 0)
	want := path + `: tensor "a.scale": byte 173: the file ended 2 bytes early: it changed or was truncated after it was opened: fetch ` +
		`it again`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := f.ReadTensorAt(make([]byte, 1), a, 0); err != nil {
		t.Errorf("what is left of the tensor: %v", err)
	}
	// The reader may also be shorter than its caller says from the start.
	_, err = NewFile(bytes.NewReader([]byte{9, 0, 0, 0, 0, 0, 0, 0, '{'}), 100, "y")
	if want := "y: byte 9: the file ended 8 bytes early: it changed or was truncated after it was opened: fetch it again"; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// failingReader fails after a number of bytes.
type failingReader struct {
	io.ReaderAt
	good int64
	err  error
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if n := r.good - off; int64(len(p)) > n {
		got, _ := r.ReaderAt.ReadAt(p[:max(n, 0)], off)
		return got, r.err
	}
	return r.ReaderAt.ReadAt(p, off)
}

func TestReadFails(t *testing.T) {
	data := readDump(t, goldenDump)
	broken := errors.New("the disk is on fire")
	for _, good := range []int64{0, 7, 8, 100, 167} {
		_, err := NewFile(failingReader{bytes.NewReader(data), good, broken}, int64(len(data)), "x")
		if want := fmt.Sprintf("x: header: byte %d: the disk is on fire", good); !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	f, err := NewFile(failingReader{bytes.NewReader(data), 174, broken}, int64(len(data)), "x")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := f.Lookup("a.scale")
	err = f.ReadTensorAt(make([]byte, 3), a, 0)
	if want := `x: tensor "a.scale": byte 174: the disk is on fire`; !errors.Is(err, broken) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// rangesReader reads several ranges in one call.
type rangesReader struct {
	io.ReaderAt
	calls int
	err   error
}

func (r *rangesReader) ReadRangesAt(p [][]byte, off []int64) error {
	r.calls++
	for i := range p {
		if _, err := r.ReadAt(p[i], off[i]); err != nil {
			return err
		}
	}
	return r.err
}

// TestReadTensorsAt reads all tensors together, with a reader that reads several ranges in one call and
// with another. An error names the first tensor, or the one with the wrong range.
func TestReadTensorsAt(t *testing.T) {
	data := readDump(t, goldenDump)
	ranges := &rangesReader{ReaderAt: bytes.NewReader(data)}
	for calls, r := range []io.ReaderAt{bytes.NewReader(data), ranges} {
		f, err := NewFile(r, int64(len(data)), "x")
		if err != nil {
			t.Fatal(err)
		}
		var p [][]byte
		var off []int64
		for _, info := range f.Tensors() {
			n := min(1, info.Bytes()) // skips the first byte
			p, off = append(p, make([]byte, info.Bytes()-n)), append(off, n)
		}
		if err := f.ReadTensorsAt(p, f.Tensors(), off); err != nil || ranges.calls != calls {
			t.Errorf("%d calls of ReadRangesAt, want %d (%v)", ranges.calls, calls, err)
		}
		for i, info := range f.Tensors() {
			want := make([]byte, len(p[i]))
			if err := f.ReadTensorAt(want, info, off[i]); err != nil || !bytes.Equal(p[i], want) {
				t.Errorf("%s: got %x, want %x (%v)", info.Name, p[i], want, err)
			}
		}
		p[1] = make([]byte, 8)
		want := fmt.Sprintf("x: tensor %q: 8 bytes at %d are not inside its %d bytes", f.Tensors()[1].Name, off[1], f.Tensors()[1].Bytes())
		if err := f.ReadTensorsAt(p, f.Tensors(), off); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
		if err := f.ReadTensorsAt(nil, nil, nil); err != nil {
			t.Error(err)
		}
	}
	ranges.err = errors.New("the disk is on fire")
	f, err := NewFile(ranges, int64(len(data)), "x")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("x: tensor %q: byte %d: the disk is on fire", f.Tensors()[0].Name, f.DataStart())
	if err := f.ReadTensorsAt([][]byte{{}}, f.Tensors()[:1], []int64{0}); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestRoundTrip writes tensors of all dtypes and several shapes in parts from several
// goroutines, and reads them back.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var specs []Spec
	data := map[string][]byte{}
	for _, d := range Dtypes() {
		for i, shape := range [][]int64{{}, {0}, {8}, {3, 16}, {2, 1, 4, 100}, {5, 0, 3}} {
			if len(shape) == 0 && d.Bits() < 8 {
				continue // less than a byte
			}
			s := Spec{fmt.Sprintf("%v.%d", d, i), d, shape}
			size, problem := d.size(shape)
			if problem != "" {
				t.Fatal(problem)
			}
			b := make([]byte, size)
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			specs, data[s.Name] = append(specs, s), b
		}
	}
	rng.Shuffle(len(specs), func(i, j int) { specs[i], specs[j] = specs[j], specs[i] })
	metadata := map[string]string{"format": "pt", "": "", "quote\"\\/\b\f\n\r\t\x01\x7f<é😀>": "\x00&\u2028"}
	l, err := NewLayout(specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "all.safetensors")
	w, err := Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	const piece = 7
	var wg sync.WaitGroup
	for _, s := range specs {
		wg.Go(func() {
			for off := 0; off < len(data[s.Name]); off += piece {
				b := data[s.Name][off:]
				if err := w.WriteTensorAt(s.Name, b[:min(piece, len(b))], int64(off)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Size() != l.FileSize() {
		t.Errorf("size %d, want %d", f.Size(), l.FileSize())
	}
	if !reflect.DeepEqual(f.header, l.header) {
		t.Errorf("read %+v, laid out %+v", f.header, l.header)
	}
	if !reflect.DeepEqual(f.Metadata(), metadata) {
		t.Errorf("metadata %q, want %q", f.Metadata(), metadata)
	}
	for _, s := range specs {
		wg.Go(func() {
			info, _ := f.Lookup(s.Name)
			if off, ok := l.Offset(s.Name); !ok || off != f.dataStart+info.Begin {
				t.Errorf("%s: offset %d, %v", s.Name, off, ok)
			}
			if info.Dtype != s.Dtype || !reflect.DeepEqual(info.Shape, s.Shape) {
				t.Errorf("wrote %+v, read %+v", s, info)
			}
			got := make([]byte, info.Bytes())
			for off := int64(0); off < info.Bytes(); off += piece {
				if err := f.ReadTensorAt(got[off:min(off+piece, info.Bytes())], info, off); err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(got, data[s.Name]) {
				t.Errorf("%s: other bytes", s.Name)
			}
		})
	}
	wg.Wait()
}
