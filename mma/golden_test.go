package mma_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

// unit returns the unit of a model for names of types: operands "e5m2×e4m3" or "f16", and scales, or
// "-" without.
func unit(t testing.TB, model, operands, out, scale string) *mma.Unit {
	t.Helper()
	m, err := mma.Lookup(model)
	if err != nil {
		t.Fatal(err)
	}
	a, b, two := strings.Cut(operands, "×")
	if !two {
		b = a
	}
	o := mma.Options{A: lookup(t, a), B: lookup(t, b), Out: lookup(t, out)}
	if scale != "-" {
		o.Scale = lookup(t, scale)
	}
	u, err := m.Unit(o)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func lookup(t testing.TB, name string) *mma.Type {
	t.Helper()
	typ, err := mma.LookupType(name)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// TestGoldens compares hashes of the results of hard cases with those of an independent
// implementation.
func TestGoldens(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "goldens.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		t.Run(strings.Join(f[:5], "/"), func(t *testing.T) {
			u := unit(t, f[0], f[1], f[2], f[4])
			k, _ := strconv.Atoi(f[3])
			seed, _ := strconv.Atoi(f[5])
			cases := 4096
			if k != u.K {
				cases = 1024
			}
			source := mmatest.Source(seed)
			var results []uint64
			for range cases {
				c := mmatest.Hard(u, k, &source)
				r := c.Dot(u)
				if strings.HasPrefix(f[0], "cdna1") && u.Out.Value(r) == 0 {
					r = 0 // the sign of zero is not compared
				}
				results = append(results, r)
			}
			checkResults(t, u, results, f[6:len(f)-1], f[len(f)-1])
		})
	}
}

// checkResults compares the first results and the hash of all.
func checkResults(t *testing.T, u *mma.Unit, results []uint64, first []string, hash string) {
	t.Helper()
	var stream, word []byte
	for _, r := range results {
		word = binary.LittleEndian.AppendUint64(word[:0], r)
		stream = append(stream, word[:u.Out.Bytes]...)
	}
	sum := sha256.Sum256(stream)
	if got := hex.EncodeToString(sum[:8]); got != hash {
		t.Errorf("hash of the results: got %s, want %s", got, hash)
	}
	for i, want := range first {
		if got := fmt.Sprintf("%0*x", 2*u.Out.Bytes, results[i]); got != want {
			t.Errorf("result %d: got %s, want %s", i, got, want)
		}
	}
}

// TestPlainGoldens compares results for finite operands of moderate size, and those of FP8 mma.sync
// with outputs recorded on H100, H200 and B200.
func TestPlainGoldens(t *testing.T) {
	for _, tc := range []struct {
		model, operands, scale string
		seed                   uint64
		first, hash            string
	}{
		{"hopper-wgmma", "e4m3", "-", 101, "c53b9000 4896fc00 45a62800 478f3400", "f85d4b8cbc36e953"},
		{"ada-mma", "e4m3", "-", 103, "4669bc00 c66b4400 45047000 c8832c00", "a7ead3a5c4718e92"},
		{"blackwell-mxf8f6f4", "e4m3", "ue8m0", 105, "c756913f 44cc897a c48ca8b8 ca7835a6", "afd131c94039a52b"},
		{"blackwell-mxf4", "e2m1", "ue8m0", 108, "c50e2e06 4331e077 3c6edabe 44602c46", "82300fdf8242a2bc"},
		{"blackwell-mxf4nvf4", "e2m1", "ue4m3", 110, "495c6503 c6275b27 49fd15e6 47e49af2", "7ffdbaa2654ce44f"},
		{"cdna3-mfma", "e4m3fnuz", "-", 111, "c4edebc2 c64be2ca 45983969 c5fbfde6", "8943a8f504aca89f"},
		{"hopper-mma", "e4m3", "-", 2001, "4731b498 46caa9b0 c6b5be6b", "5133a2c06f6cf56c"},
		{"blackwell-mma", "e5m2×e4m3", "-", 2002, "ca87563a c91ca15a 4acbce9e", "944029e7114a1146"},
	} {
		t.Run(tc.model+"/"+tc.operands, func(t *testing.T) {
			u := unit(t, tc.model, tc.operands, "f32", tc.scale)
			source := mmatest.Source(tc.seed)
			var results []uint64
			for range 4096 {
				c := mmatest.Plain(u, u.K, &source)
				results = append(results, c.Dot(u))
			}
			checkResults(t, u, results, strings.Fields(tc.first), tc.hash)
		})
	}
}
