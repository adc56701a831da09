package identify

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// block returns a block whose largest magnitude is value, under a scale.
func block(f quant.Format, code byte, scale, value float32) codes {
	one := codes{scale: scale, code: code, elements: make([]uint32, magnitudes(f.Element))}
	if f.ByteScales() {
		one.scale = f.Scale.Decode(uint32(code))
	}
	for n := range one.elements {
		if valueOf(f.Element, n) == float64(value) {
			one.top, one.elements[n] = n, 1
		}
	}
	return one
}

// TestContradicting: largest codes exclude rules of scales, at the edges of what they make.
func TestContradicting(t *testing.T) {
	mxfp4, nvfp4 := quant.MXFP4, quant.NVFP4
	for _, tc := range []struct {
		name string
		f    quant.Format
		w    writer
		one  codes
		want int64
	}{
		{"rceil makes 3 to 6: 2.5 rounds to 2", mxfp4, writer{low: 0.75}, block(mxfp4, 100, 0, 2), 1},
		{"3", mxfp4, writer{low: 0.75}, block(mxfp4, 100, 0, 3), 0},
		{"6", mxfp4, writer{low: 0.75}, block(mxfp4, 100, 0, 6), 0},
		{"floor makes 4 to 8", mxfp4, writer{low: 1}, block(mxfp4, 100, 0, 2), 1},
		{"3.5 rounds to 4, 4 does not to 3", mxfp4, writer{low: 1}, block(mxfp4, 100, 0, 3), 1},
		{"from 8 the next scale", mxfp4, writer{low: 1}, block(mxfp4, 100, 0, 6), 0},
		{"a low rule makes no 6", mxfp4, writer{low: 0.6}, block(mxfp4, 100, 0, 6), 1},
		{"the smallest scale tells nothing", mxfp4, writer{low: 0.75}, block(mxfp4, 0, 0, 1), 0},
		{"nor the largest", mxfp4, writer{low: 0.75}, block(mxfp4, 254, 0, 1), 0},
		{"E4M3 scales are near: 6", nvfp4, writer{}, block(nvfp4, 0x38, 0, 6), 0},
		{"4 under the scale 1 is too low", nvfp4, writer{}, block(nvfp4, 0x38, 0, 4), 1},
		{"4 under a subnormal scale, which is far from the next", nvfp4, writer{}, block(nvfp4, 2, 0, 4), 0},
		{"4 under the smallest scale of the writer", nvfp4, writer{lowest: 0x38}, block(nvfp4, 0x38, 0, 4), 0},
		{"4 under the largest scale", nvfp4, writer{}, block(nvfp4, 0x7e, 0, 4), 0},
		{"FP32 scales give the largest", quant.FP8Row, writer{}, block(quant.FP8Row, 0, 0.3, 448), 0},
		{"and no other", quant.FP8Row, writer{}, block(quant.FP8Row, 0, 0.3, 416), 1},
	} {
		c := census{f: tc.f, blocks: []codes{tc.one}}
		if got := c.contradicting(&tc.w); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestMarks: what a writer does not leave in a file.
func TestMarks(t *testing.T) {
	nvfp4, byBlock := quant.NVFP4, quant.Quantizer{Format: quant.NVFP4, Arithmetic: quant.BlockOnly}
	seven := census{f: nvfp4, global: 0.3, blocks: []codes{block(nvfp4, 7, 0, 6)}}
	for _, tc := range []struct {
		name string
		c    census
		w    writer
		want []string // beginnings
	}{
		{"zeros", census{f: quant.MXFP4, zeros: map[byte]int64{3: 1}}, writer{zero: 3}, nil},
		{"next to nothing", census{f: quant.MXFP4, zeros: map[byte]int64{3: 1}}, writer{least: 3}, nil},
		{"other zeros", census{f: quant.MXFP4, zeros: map[byte]int64{3: 1}}, writer{zero: 127},
			[]string{"blocks of zeros get scale 0x7f, not 0x3"}},
		{"scales without bytes", census{f: quant.FP8Row, zeros: map[byte]int64{3: 1}}, writer{}, nil},
		{"-0", census{f: quant.MXFP4, negatives: 1}, writer{}, []string{"writes no -0"}},
		{"-0 stays", census{f: quant.MXFP4, negatives: 1}, writer{writesMinus0: true}, nil},
		{"-0 comes about", census{f: quant.MXFP4, negatives: 1}, writer{roundsMinus0: true}, nil},
		{"integers", census{f: quant.MXINT8, negatives: 1}, writer{}, nil},
		{"low scales", seven, writer{least: 8, lowest: 8}, []string{"no scales below 0x8"}},
		{"the lower counts", seven, writer{least: 7, lowest: 8}, nil},
		{"and either", seven, writer{least: 8, lowest: 7}, nil},
		{"a global scale", census{f: nvfp4, global: 0.3}, writer{q: byBlock}, []string{"no global scale"}},
		{"none", census{f: nvfp4, global: 1}, writer{q: byBlock}, nil},
		{"none, and asked for", census{f: nvfp4, global: 1}, writer{}, []string{"a global scale"}},
	} {
		if got := tc.c.marks(&tc.w); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestUnsigned: a writer that rounds to -0 does not leave none, the less so the more elements are next to zero.
func TestUnsigned(t *testing.T) {
	for _, tc := range []struct {
		c    census
		w    writer
		want float64
	}{{census{smallest: 40}, writer{roundsMinus0: true}, 10}, {census{smallest: 40, negatives: 1}, writer{roundsMinus0: true}, 0},
		{census{smallest: 40}, writer{}, 0}} {
		if got := tc.c.unsigned(&tc.w); got != tc.want {
			t.Errorf("%+v: %g, want %g", tc.c, got, tc.want)
		}
	}
}

// TestImages: FP32 scales and global scales are those of amaxes in BF16, or there is no such mark.
func TestImages(t *testing.T) {
	writers, err := writersOf(quant.FP8Row)
	if err != nil {
		t.Fatal(err)
	}
	names := func(c census, all []writer) (told string) {
		images, err := c.images(all)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if made, ok := images[all[i].Name]; ok && made {
				told += all[i].Name + " "
			}
		}
		return told
	}
	row := func(scales ...float32) (c census) {
		c.f = quant.FP8Row
		for _, s := range scales {
			c.blocks = append(c.blocks, codes{scale: s})
		}
		return c
	}
	amax, next := float32(1.0078125), float32(1.015625)
	if got := names(row(amax/448, next/448), writers); !strings.Contains(got, "modelopt") {
		t.Errorf("quotients: %q", got)
	}
	if got := names(row(amax/448, math.Nextafter32(next/448, 9)), writers); strings.Contains(got, "modelopt") {
		t.Errorf("another last bit: %q", got)
	}
	if got := names(row(1.00003/448), writers); got != "" {
		t.Errorf("an amax that is no BF16: %q", got)
	}
	typed := row(amax / 448)
	typed.typed = true
	if got := names(typed, writers); got != "" {
		t.Errorf("rounded scales: %q", got)
	}
	if writers, err = writersOf(quant.NVFP4); err != nil {
		t.Fatal(err)
	}
	global := census{f: quant.NVFP4, global: amax / (6 * 448)}
	if got := names(global, writers); !strings.Contains(got, "modelopt") || strings.Contains(got, "ggml") {
		t.Errorf("a global scale: %q", got)
	}
	global.global = math.Nextafter32(global.global, 9)
	exact := names(global, writers)
	global.divided = true
	if got := names(global, writers); !strings.Contains(got, "modelopt") || strings.Contains(exact, "modelopt") {
		t.Errorf("an inverse: %q, not inverted %q", got, exact)
	}
	if one := (census{f: quant.NVFP4, global: 1}); names(one, writers) != "" {
		t.Error("no global scale")
	}
}

// TestSpecial: scales that no profile makes, and what is left of them if a few blocks contradict.
func TestSpecial(t *testing.T) {
	blocks := func(f quant.Format, n int, one codes, others ...codes) census {
		return census{f: f, global: 0.3, blocks: append(slices.Repeat([]codes{one}, n), others...)}
	}
	four, six := block(quant.NVFP4, 0x40, 0, 4), block(quant.NVFP4, 0x40, 0, 6)
	low, odd := block(quant.FP8Row, 0, 0.5, 448), block(quant.FP8Row, 0, 0.375, 448)
	for _, tc := range []struct {
		name, want string
		c          census
	}{
		{"6 and 4", "four over six", blocks(quant.NVFP4, 64, six, four)},
		{"6 alone", "", blocks(quant.NVFP4, 64, six)},
		{"3 beside them", "", blocks(quant.NVFP4, 64, six, four, block(quant.NVFP4, 0x40, 0, 3))},
		{"3 of many", "four over six", blocks(quant.NVFP4, 600, six, four, block(quant.NVFP4, 0x40, 0, 3))},
		{"scales beyond", "", blocks(quant.NVFP4, 64, six, four, block(quant.NVFP4, 0x7d, 0, 6), four)},
		{"3 under a subnormal scale", "four over six", blocks(quant.NVFP4, 64, six, four, block(quant.NVFP4, 3, 0, 3))},
		{"powers of two", "powers of two", blocks(quant.FP8Row, 64, low)},
		{"and another", "", blocks(quant.FP8Row, 64, low, odd)},
		{"too large by two", "", blocks(quant.FP8Row, 64, low, block(quant.FP8Row, 0, 0.5, 208))},
		{"half of the largest is its edge", "powers of two", blocks(quant.FP8Row, 64, low, block(quant.FP8Row, 0, 0.5, 224))},
	} {
		if got := tc.c.special(); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestFew: of a few blocks only FP32 scales tell, if a writer makes them.
func TestFew(t *testing.T) {
	for _, tc := range []struct {
		f     quant.Format
		scale float32
		want  bool
	}{{quant.MXFP4, 0, false}, {quant.FP8Row, 1.0078125 / 448, true}, {quant.FP8Row, 1.00003 / 448, false}} {
		for n, want := range map[int]bool{least - 1: tc.want, least: true, 0: false} {
			one := block(tc.f, 100, tc.scale, tc.f.Element.Max())
			writers, err := writersOf(tc.f)
			if err != nil {
				t.Fatal(err)
			}
			judged := Weight{}
			if err := judged.judge(&census{f: tc.f, blocks: slices.Repeat([]codes{one}, n)}, writers); err != nil {
				t.Fatal(err)
			}
			if got := !strings.Contains(judged.Verdict, "too few blocks"); got != want {
				t.Errorf("%s, %d blocks: %s", tc.f, n, judged.Verdict)
			}
		}
	}
}

// TestExcludes: by blocks, or by likelihood with what a block may be off.
func TestExcludes(t *testing.T) {
	c := census{f: quant.MXFP4, blocks: make([]codes, 1000), weighed: 100}
	for _, tc := range []struct {
		k    Candidate
		want bool
	}{
		{Candidate{Scales: 2}, false}, {Candidate{Scales: 3}, true},
		{Candidate{Unlikely: math.Log(100) + 0.99}, false}, {Candidate{Unlikely: math.Log(100) + 1.01}, true},
	} {
		if got := c.excludes(tc.k); got != tc.want {
			t.Errorf("%+v: %v", tc.k, got)
		}
	}
	if format.E8M0.MaxCode() != 254 || (&codes{code: 0}).inner() || (&codes{code: 254}).inner() || !(&codes{code: 1}).inner() {
		t.Error("scales at a limit tell nothing")
	}
}
