package ggml

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// testRow returns values of many magnitudes, of which some groups are zeros, and weights; both are the same on all machines.
func testRow(r *rand.Rand, n int) (x, importance []float32) {
	for i := range n {
		sign := float32(1 - 2*r.IntN(2))
		spread := bits.TrailingZeros64(r.Uint64() | 1<<20)
		x = append(x, sign*float32(r.IntN(1<<16))/(1<<20)*float32(int(1)<<spread)*float32(min(1, i/32%5)))
		importance = append(importance, float32(r.IntN(1<<12))/(1<<8))
	}
	return x, importance
}

// TestEncode: the bits of blocks are those that TestGGMLEncode of cmd/microscale/interop finds equal to ggml's, on every machine, and the
// error of an element is within Bound where errors are weighed by the values alone.
func TestEncode(t *testing.T) {
	want := map[string]string{
		"Q2_K": "f8630d24f086b600", "Q3_K": "5f6aa1c931e8a2f3", "Q4_0": "7f7a54e171b3cbc4", "Q4_1": "6bdcf5d7411bcc0f",
		"Q4_K": "eb4e87b18a02ed83", "Q5_0": "c9fbea6219333c69", "Q5_1": "7e8a26d934b96703", "Q5_K": "a6e123b8d803bef0",
		"Q6_K": "cf66f07818f4fc2d",
	}
	for _, name := range slices.Sorted(maps.Keys(quants)) {
		q := quants[name]
		if !q.Encodes() {
			continue
		}
		r := rand.New(rand.NewPCG(3, 4))
		sum := fnv.New64a()
		for i := range 60 {
			x, importance := testRow(r, 512)
			if i%2 == 0 {
				importance = nil
			}
			blocks, back := make([]byte, len(x)/q.Elements*q.Bytes), make([]float32, len(x))
			q.Encode(blocks, x, importance)
			if _, err := sum.Write(blocks); err != nil {
				t.Fatal(err)
			}
			q.Decode(back, blocks)
			for at := 0; at < len(x) && importance == nil; at += q.Elements {
				_, amax := extreme(x[at : at+q.Elements])
				for j, v := range x[at : at+q.Elements] {
					if d := abs(back[at+j] - v); !(d <= q.Bound(amax)) {
						t.Fatalf("%s: %g becomes %g in a block of amax %g", name, v, back[at+j], amax)
					}
				}
			}
		}
		if got := fmt.Sprintf("%x", sum.Sum64()); got != want[name] {
			t.Errorf("%s: blocks have the hash %s, want %s", name, got, want[name])
		}
	}
}

func TestEncodeLengths(t *testing.T) {
	q := quants["Q4_K"]
	for _, c := range []struct{ bytes, values, weights int }{{144, 255, 0}, {143, 256, 0}, {144, 256, 32}, {0, 32, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: no panic", c)
				}
			}()
			var weights []float32
			if c.weights > 0 {
				weights = make([]float32, c.weights)
			}
			q.Encode(make([]byte, c.bytes), make([]float32, c.values), weights)
		}()
	}
}

// TestEncodeBeyond: a value beyond Max decodes to NaN, Inf or what Bound rejects, also where the sums of a search overflow.
func TestEncodeBeyond(t *testing.T) {
	for name, q := range quants {
		if !q.Encodes() {
			continue
		}
		r := rand.New(rand.NewPCG(5, 6))
		for _, amax := range []float32{3 * q.Max(), 1e10, 1e15, 1e20, 1e30, 3e38, math.MaxFloat32} {
			for i := range 8 {
				x, importance := testRow(r, 256)
				at := r.IntN(len(x))
				x[at] = amax * float32(1-2*(i%2))
				if i < 4 {
					importance = nil
				}
				blocks, back := make([]byte, len(x)/q.Elements*q.Bytes), make([]float32, len(x))
				q.Encode(blocks, x, importance)
				q.Decode(back, blocks)
				bound := q.Bound(amax)
				if bad := func(v, x float32) bool { return !(abs(v-x) <= bound) || v-v != 0 }; !bad(back[at], x[at]) {
					t.Errorf("%s: %g becomes %g, within the bound %g", name, x[at], back[at], bound)
				}
			}
		}
	}
}
