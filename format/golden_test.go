package format

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// TestGoldenBF16 compares the codes of all BF16 patterns, in numeric order, with hashes of codes
// that an independent brute-force search found.
func TestGoldenBF16(t *testing.T) {
	for _, tc := range []struct {
		format   *Scalar
		rounding Rounding
		want     string
	}{
		{E4M3, NearestEven, "2f8096b3b00699a8"},
		{E5M2, NearestEven, "69d1394f72425f9b"},
		{E2M3, NearestEven, "f5c2d705e7886df3"},
		{E3M2, NearestEven, "91789e860fc384ff"},
		{E2M1, NearestEven, "8692da74cf3cf29c"},
		{E8M0, Up, "071ed5f46e6976a0"},
		{E8M0, TowardZero, "31275856a8aaec04"},
	} {
		t.Run("format="+tc.format.Name+"/rounding="+tc.rounding.String(), func(t *testing.T) {
			codes := make([]byte, 1<<16)
			for i := range codes {
				codes[i] = byte(tc.format.EncodeWith(BF16.Decode(uint32(i)), Conversion{Rounding: tc.rounding}, 0))
			}
			sum := sha256.Sum256(codes)
			if got := hex.EncodeToString(sum[:8]); got != tc.want {
				t.Errorf("hash of the codes of all BF16 patterns: got %s, want %s", got, tc.want)
			}
		})
	}
}
