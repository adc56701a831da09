package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
)

// rowKinds are what the values of rows may be like: edges of searches, groups without a value, and magnitudes whose squares overflow or
// vanish.
var rowKinds = []func(r *rand.Rand) func() float32{
	func(r *rand.Rand) func() float32 { return func() float32 { return float32(r.NormFloat64()) / 50 } },
	func(r *rand.Rand) func() float32 {
		return func() float32 { return float32(math.Pow(r.NormFloat64(), 5)) }
	},
	func(*rand.Rand) func() float32 { return func() float32 { return 0 } },
	func(r *rand.Rand) func() float32 { v := float32(r.NormFloat64()); return func() float32 { return v } },
	func(r *rand.Rand) func() float32 { return func() float32 { return float32(1 + r.Float64()) } },
	func(r *rand.Rand) func() float32 { return func() float32 { return -float32(r.ExpFloat64()) } },
	func(r *rand.Rand) func() float32 { return func() float32 { return float32(r.IntN(17)-8) / 8 } },
	func(r *rand.Rand) func() float32 {
		return func() float32 { return math.Float32frombits(math.Float32bits(float32(r.NormFloat64())) &^ 0xffff) }
	},
	func(r *rand.Rand) func() float32 {
		return func() float32 {
			if r.IntN(16) > 0 {
				return 0
			}
			return float32(r.NormFloat64())
		}
	},
	func(r *rand.Rand) func() float32 {
		scale := math.Exp2(float64(r.IntN(250) - 140))
		return func() float32 { return float32(r.NormFloat64() * scale) }
	},
	func(r *rand.Rand) func() float32 {
		return func() float32 { return float32(r.NormFloat64() * math.Exp2(float64(r.IntN(40)-20))) }
	},
	func(r *rand.Rand) func() float32 {
		at := 0
		return func() float32 { at++; return float32(r.NormFloat64() * float64(at/32%3) * 1e-3) }
	},
}

// TestGGMLEncode compares the blocks of rows, with and without an importance matrix, with those of ggml_quantize_chunk.
func TestGGMLEncode(t *testing.T) {
	const columns, each = 512, 6
	r := rand.New(rand.NewPCG(7, 7))
	var rows, importance []float32
	for range each {
		for _, kind := range rowKinds {
			next := kind(r)
			for range columns {
				rows = append(rows, next())
			}
		}
	}
	for line := range 3 {
		for range columns {
			w := float32(math.Exp(r.NormFloat64() * float64(1+line)))
			if line == 2 && r.IntN(4) == 0 {
				w = 0
			}
			importance = append(importance, w)
		}
	}
	dir := t.TempDir()
	for name, values := range map[string][]float32{"rows": rows, "importance": importance} {
		raw, err := binary.Append(nil, binary.LittleEndian, values)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var arguments []string
	types := map[string]ggml.Quant{}
	for number := range gguf.Type(64) {
		if q, err := ggml.LookupQuant(number.String()); err == nil && q.Encodes() {
			arguments, types[q.Name] = append(arguments, fmt.Sprintf("%s=%d", q.Name, number)), q
		}
	}
	if len(types) != 9 {
		t.Errorf("%d types are encoded", len(types))
	}
	libraries := filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")
	script(t, python(t, "numpy==2.4.6"), "ggml_encode.py", append([]string{libraries, dir}, arguments...)...)
	for name, q := range types {
		for line := -1; line < len(importance)/columns; line++ {
			file, weights := name+".plain.blocks", []float32(nil)
			if line >= 0 {
				file, weights = fmt.Sprintf("%s.%d.blocks", name, line), importance[line*columns:(line+1)*columns]
			}
			want, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			got, row := make([]byte, len(want)), columns/q.Elements*q.Bytes
			wrong, first := 0, -1
			for i := range len(rows) / columns {
				block := got[i*row : (i+1)*row]
				q.Encode(block, rows[i*columns:(i+1)*columns], weights)
				for at := 0; at < row; at += q.Bytes {
					if !bytes.Equal(block[at:at+q.Bytes], want[i*row+at:i*row+at+q.Bytes]) {
						if wrong++; first < 0 {
							first = i
						}
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%s: %d of %d blocks differ, the first in row %d, of kind %d", file, wrong, len(want)/q.Bytes, first, first%len(rowKinds))
			}
			t.Logf("%s: %d blocks", file, len(want)/q.Bytes)
		}
	}
}
