package ggml

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// decoded has the CRC-32 of the values of pseudo-random blocks, which interop's TestGGMLDecode
// compared with the Python package gguf.
var decoded = map[string]uint32{
	"IQ1_M":   0xc091e7d7,
	"IQ1_S":   0x2df0bae5,
	"IQ2_S":   0xc50f4c38,
	"IQ2_XS":  0x8f10d9e,
	"IQ2_XXS": 0x4cd647b9,
	"IQ3_S":   0x5f1e16d0,
	"IQ3_XXS": 0xb63e664e,
	"IQ4_NL":  0x1e309661,
	"IQ4_XS":  0x87c0714e,
	"TQ1_0":   0xea810016,
	"TQ2_0":   0xece79298,
	"Q2_K":    0x6d7bf4d0,
	"Q3_K":    0x72d9a289,
	"Q4_0":    0xaac17dbe,
	"Q4_1":    0x155882ef,
	"Q4_K":    0x1e7ffce9,
	"Q5_0":    0x78b44738,
	"Q5_1":    0x6e1556da,
	"Q5_K":    0xe35d77d9,
	"Q6_K":    0x6cd99179,
	"Q8_0":    0xdebfc5c6,
}

func TestDecode(t *testing.T) {
	for name, q := range quants {
		rng := rand.New(rand.NewPCG(1, 2))
		blocks := make([]byte, 50*q.Bytes)
		for i := range blocks {
			blocks[i] = byte(rng.Uint32()) &^ 0x40 // no FP16 is NaN or Inf
		}
		values := make([]float32, 50*q.Elements)
		q.Decode(values, blocks)
		var b []byte
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v+0)) // -0 as 0
		}
		if got := crc32.ChecksumIEEE(b); got != decoded[name] {
			t.Errorf("%q: %#x,", name, got)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	if _, err := LookupQuant("IQ9_S"); err == nil || !strings.Contains(err.Error(), "IQ9_S cannot be decoded: want one of IQ1_M") {
		t.Error(err)
	}
	q, err := LookupQuant("Q4_K")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("half a block: no panic")
		}
	}()
	q.Decode(make([]float32, 128), make([]byte, 72))
}
