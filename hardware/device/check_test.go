package device

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

func formatOf(t *testing.T, name string) quant.Format {
	t.Helper()
	if name == "e5m2" {
		return quant.Format{Name: name, Element: format.E5M2, Scale: format.F32}
	}
	f, err := quant.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// request parses "h100 mxfp8 4096 4096 4096", "h100 fp8-vec128/fp8-block128/fp8-vec128 …" for
// input, weight and gradient, and a final "forward".
func request(t *testing.T, text string) Request {
	t.Helper()
	var name, formats, forward string
	var r Request
	n, err := fmt.Sscan(text+" -", &name, &formats, &r.M, &r.N, &r.K, &forward)
	if n != 6 || err != nil {
		t.Fatal(text, err)
	}
	if r.Device, err = Lookup(name); err != nil {
		t.Fatal(err)
	}
	f := strings.Split(formats, "/")
	if len(f) == 1 {
		f = []string{f[0], f[0], f[0]}
	}
	r.Input, r.Weight, r.Grad = formatOf(t, f[0]), formatOf(t, f[1]), formatOf(t, f[2])
	r.Forward = forward == "forward"
	return r
}

// TestDocumentedRules compares Check with what the documentation of cuBLASLt, CUTLASS and
// hipBLASLt says of each case. want has the layouts of fprop, dgrad and wgrad, with a t for
// each operand that needs a transposed copy; or the problem.
func TestDocumentedRules(t *testing.T) {
	for _, tc := range []struct{ request, want string }{
		// Per-tensor FP8: TN only on Ada and Hopper, all layouts on Blackwell 10.x, 16-byte rows.
		{"l40s fp8-tensor 64 64 64", "TN TN-t TN-tt"},
		{"h100 fp8-tensor 64 64 64", "TN TN-t TN-tt"},
		{"b200 fp8-tensor 64 64 64", "TN NN NT"},
		{"b300 fp8-tensor 64 64 64", "TN NN NT"},
		{"rtx-pro-6000 fp8-tensor 64 64 64", "TN TN-t TN-tt"},
		{"h100 fp8-tensor 64 64 72 forward", "the contiguous dimension of input is 72, not a multiple of 16: pad it to 80"},
		{"h100 fp8-tensor 8 8 16 forward", "TN"},
		{"h100 fp8-tensor 8 12 16 forward", "the contiguous dimension of the result is 12, not a multiple of 8: pad it to 16"},
		{"b200 fp8-tensor 64 72 64", "the contiguous dimension of gradient is 72, not a multiple of 16: pad it to 80"},
		// OUTER_VEC_32F, VEC128_32F and BLK128x128_32F: 9.0 only.
		{"l40s fp8-row 64 64 64", "Ada sm_89 has no unit for fp8-row: use fp8-tensor, bf16"},
		{"h100 fp8-row 64 64 64", "TN TN-t TN-tt"},
		{"b200 fp8-row 64 64 64", "Blackwell sm_100 has no unit for fp8-row"},
		{"h100 fp8-vec128 128 128 128", "TN TN-t TN-tt"},
		{"h100 fp8-vec128/fp8-block128/fp8-vec128 128 128 128", "TN TN-t TN-tt"},
		{"h100 fp8-block128 128 128 128", "cuBLASLt accepts 128×128 blocks in one operand only"},
		{"h100 fp8-vec128 132 128 128 forward", "the rows of the result is 132, not a multiple of 8"},
		{"b200 fp8-vec128 128 128 128", "Blackwell sm_100 has no unit for fp8-vec128"},
		// VEC32_UE8M0 and VEC16_UE4M3: from 10.0; FP4 is TN only, rows of 32 elements.
		{"h100 mxfp8 4096 4096 4096", "Hopper sm_90 has no unit for mxfp8: use fp8-tensor, fp8-row, fp8-vec128, bf16"},
		{"h100 nvfp4 64 64 64", "Hopper sm_90 has no unit for nvfp4"},
		{"b200 mxfp8 64 64 64", "TN NN NT"},
		{"b200 mxfp8-32x32 64 64 64", "TN NN NT"},
		{"h100 e5m2 64 64 64 forward", "cuBLASLt accepts E5M2 elements in one operand only: use another format for input or weight"},
		{"mi355x e5m2 64 64 64 forward", "TN"},
		{"h100 fp8-tensor/fp8-tensor/e5m2 64 64 64", "TN TN-t TN-tt"},
		{"b200 mxfp8-e5m2 64 64 64", "TN NN NT"}, // CUTLASS, where cuBLASLt takes one operand only
		{"b200 mxfp8/mxfp8/mxfp8-e5m2 64 64 64", "TN NN NT"},
		{"b200 mxfp8 64 64 40", "the contiguous dimension of input is 40, not a multiple of 16: pad it to 48"},
		{"b200 nvfp4 64 64 64", "TN TN-t TN-tt"},
		{"b200 nvfp4/nvfp4-16x16/nvfp4 64 64 64", "TN TN-t TN-tt"},
		{"b200 nvfp4 64 64 48 forward", "the contiguous dimension of input is 48, not a multiple of 32: pad it to 64"},
		{"gb300 mxfp4 64 64 64", "TN TN-t TN-tt"},
		{"b200 mxfp6-e2m3 128 128 128", "TN NN NT"},
		{"b200 mxfp6-e2m3 128 128 192 forward", "the contiguous dimension of input is 192, not a multiple of 128: pad it to 256"},
		{"b200 mxfp8/mxfp4/mxfp8 128 128 128", "TN NN NT"},
		{"b200 mxint8 64 64 64", "Blackwell sm_100 reads codes of e4m3 and e5m2, not int8"},
		{"rtx-pro-6000 mxfp8 64 64 64", "TN TN-t TN-tt"},
		// BF16: any layout.
		{"h100 bf16 7 9 11", "TN NN NT"},
		// hipBLASLt: FNUZ on gfx942; VEC32_UE8M0 on gfx950, TN, m and n % 16, K % 128.
		{"mi300x fp8-tensor 64 64 64", "CDNA3 gfx942 reads codes of e4m3fnuz and e5m2fnuz, not e4m3"},
		{"mi300x mxfp8 64 64 128", "CDNA3 gfx942 has no unit for mxfp8"},
		{"mi355x mxfp8 128 128 128", "TN TN-t TN-tt"},
		{"mi355x mxfp6-e3m2/mxfp4/mxfp8-e5m2 128 128 128", "TN TN-t TN-tt"},
		{"mi355x mxfp8-e5m2 128 128 128 forward", "TN"},
		{"mi355x mxfp8 64 64 64 forward", "the summed dimension is 64, not a multiple of 128: pad it to 128"},
		{"mi355x mxfp8 24 64 128 forward", "the rows of the result is 24, not a multiple of 16: pad it to 32"},
		{"mi355x mxfp8 64 24 128 forward", "the columns of the result is 24, not a multiple of 16: pad it to 32"},
		{"mi355x nvfp4 64 64 128", "CDNA4 gfx950 has no unit for nvfp4"},
	} {
		t.Run(tc.request, func(t *testing.T) {
			a, err := Check(request(t, tc.request))
			if err != nil {
				t.Fatal(err)
			}
			var layouts, problems []string
			for _, p := range a.Products {
				if p.Mode != nil {
					layout := string(p.Layout)
					if n := count(p.A.Transposed) + count(p.B.Transposed); n > 0 {
						layout += "-" + strings.Repeat("t", n)
					}
					layouts = append(layouts, layout)
				}
				for _, problem := range p.Problems {
					if problem.Source == nil {
						t.Errorf("%s has no source", problem)
					}
					if slices.Contains(problems, p.Name+" "+problem.String()) {
						t.Errorf("%s: %s is listed twice", p.Name, problem)
					}
					problems = append(problems, p.Name+" "+problem.String())
				}
			}
			if a.OK != (len(problems) == 0) {
				t.Errorf("got OK = %v with %d problems", a.OK, len(problems))
			}
			if a.OK && strings.Join(layouts, " ") != tc.want {
				t.Errorf("got layouts %s, want %s", strings.Join(layouts, " "), tc.want)
			}
			if all := strings.Join(problems, "; "); !a.OK && !strings.Contains(all, tc.want) {
				t.Errorf("got problems %q, want %q", all, tc.want)
			}
		})
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLibraries checks what training libraries say: whether a device has a recipe, the errors where it
// does not, and the multiple to which Megatron-LM pads tokens.
func TestLibraries(t *testing.T) {
	const ends = "does not check the device: Transformer Engine's error ends the run"
	for _, tc := range []struct {
		request, recipe string
		ok              bool
		says, megatron  string // how the statements start; "" for none
	}{
		{"h100 mxfp8 64 64 64", "MXFP8BlockScaling", false, "RuntimeError: Device compute capability 10.0 or higher required for MXFP8 " +
			"execution.", ends},
		{"rtx-pro-6000 mxfp8 64 64 64", "MXFP8BlockScaling", false, "RuntimeError: MXFP8 (for all gemm layouts) is not supported on 12.0+ " +
			"architectures yet.", ends},
		{"h200 nvfp4 64 64 64", "NVFP4BlockScaling", false, "RuntimeError: Device compute capability 10.0 or higher required for NVFP4 " +
			"execution.", ""},
		{"b200 nvfp4 64 64 64", "NVFP4BlockScaling", true, "", ""},
		{"l40s fp8-vec128 64 64 64", "Float8BlockScaling", false, "RuntimeError: FP8 block scaled GEMM requires compute capability 9.0 or " +
			"higher and CUDA >= 12.9.", ends},
		{"h100 fp8-vec128 64 64 64", "Float8BlockScaling", true, "", "pads tokens to a multiple of 16; "},
		{"b200 fp8-vec128 64 64 64", "Float8BlockScaling", true, "emulated by MXFP8", "pads tokens to a multiple of 16; "},
		{"l40s fp8-tensor 64 64 64", "Float8CurrentScaling", true, "", "pads tokens to a multiple of 16; "},
		{"b200 mxfp8 64 64 48", "MXFP8BlockScaling", false, "k is 48, and dimensions must be multiples of 32", ends},
		{"b200 mxfp8 64 64 64", "MXFP8BlockScaling", true, "", "pads tokens to a multiple of 32; "},
		{"mi355x mxfp8 128 128 128", "scaled_mm", true, "ROCm 7.0 or later", ""},
		{"mi355x mxfp4 128 128 16", "scaled_mm", false, "k is 16, and dimensions must be multiples of 32", ""},
		{"b200 mxfp6-e2m3 128 128 128", "", false, "no recipe quantizes to mxfp6-e2m3", ""},
	} {
		a, err := Check(request(t, tc.request))
		if err != nil {
			t.Fatal(err)
		}
		first := a.Libraries[0]
		if first.Recipe != tc.recipe || first.OK != tc.ok || !starts(first.Says, tc.says) || first.Source == nil {
			t.Errorf("%s: got %+v, want %s: %v, %s", tc.request, first, tc.recipe, tc.ok, tc.says)
		}
		megatron := ""
		for _, s := range a.Libraries[1:] {
			megatron = s.Says
			if s.Library != "Megatron-LM" || s.OK != tc.ok || s.Source == nil {
				t.Errorf("%s: got %+v, want a statement of Megatron-LM", tc.request, s)
			}
		}
		if !starts(megatron, tc.megatron) {
			t.Errorf("%s: got %q of Megatron-LM, want %q", tc.request, megatron, tc.megatron)
		}
	}
	a, err := Check(request(t, "mi300x fp8-tensor 128 128 128"))
	if err != nil || len(a.Libraries) != 0 {
		t.Errorf("got %v, %v, want no statements of NVIDIA's libraries about AMD's devices", a.Libraries, err)
	}
}

// starts reports whether s starts with prefix, or is empty if that is.
func starts(s, prefix string) bool {
	return strings.HasPrefix(s, prefix) && (s == "") == (prefix == "")
}

// TestCopies compares the three options for the input of a linear layer. Document 004 reads a
// per-tensor source twice; MXFP8 has no transpose, since its scales differ by direction.
func TestCopies(t *testing.T) {
	const n = 1024 * 1024
	for _, tc := range []struct {
		request string
		want    [][4]int64 // available, reads, writes, kept
	}{
		{"h100 fp8-tensor 1024 1024 1024", [][4]int64{{1, 4 * n, 2*n + 8, n + 4}, {1, 8 * n, 2*n + 8, 2 * n}, {1, 5*n + 4, 2*n + 8, n + 4}}},
		{"b200 fp8-tensor 1024 1024 1024", [][4]int64{{1, 4 * n, n + 4, n + 4}}},
		{"b200 mxfp8 1024 1024 1024", [][4]int64{{1, 2 * n, 2 * 33 * n / 32, 33 * n / 32}, {1, 4 * n, 2 * 33 * n / 32, 2 * n},
			{0, 2*n + 33*n/32, 2 * 33 * n / 32, 33 * n / 32}}},
		{"b200 mxfp8-32x32 1024 1024 1024", [][4]int64{{1, 2 * n, n + n/1024, n + n/1024}}},
		{"b200 nvfp4 1024 1024 1024", [][4]int64{{1, 4 * n, 2 * (9*n/16 + 4), 9*n/16 + 4}, {1, 8 * n, 2 * (9*n/16 + 4), 2 * n},
			{0, 4*n + 9*n/16 + 4, 2 * (9*n/16 + 4), 9*n/16 + 4}}},
	} {
		a, err := Check(request(t, tc.request))
		if err != nil {
			t.Fatal(err)
		}
		if g := a.Copies[2]; len(g.Options) != 1 || g.Options[0].Kept != 0 {
			t.Errorf("%s: got options %+v of the gradient, want one that keeps nothing", tc.request, g.Options)
		}
		var got [][4]int64
		for _, o := range a.Copies[0].Options {
			got = append(got, [4]int64{int64(count(o.Available)), o.Reads, o.Writes, o.Kept})
			if o.Available != (o.Why == "") {
				t.Errorf("%s: %s is available: %v, because %q", tc.request, o.Name, o.Available, o.Why)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: got %v, want %v", tc.request, got, tc.want)
		}
	}
}

// TestRequantized: the transposed copy of an operand has other scales than the rowwise one unless one
// scale covers a tensor or a square block.
func TestRequantized(t *testing.T) {
	for request1, want := range map[string]bool{
		"h100 fp8-tensor 128 128 128": false, "h100 fp8-vec128 128 128 128": true,
		"b200 mxfp8 128 128 128": true, "b200 mxfp8-32x32 128 128 128": false, "h100 bf16 128 128 128": false,
	} {
		a, err := Check(request(t, request1))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range a.Products {
			for _, o := range []Operand{p.A, p.B} {
				if o.Requantize != (want && o.Columnwise) {
					t.Errorf("%s: %s of %s: got requantized: %v, want %v", request1, o.Name, p.Name, o.Requantize, !o.Requantize)
				}
			}
		}
	}
}

func TestCheckErrors(t *testing.T) {
	for request1, want := range map[string]string{
		"h100 fp8-tensor 0 1 1":  "m: got 0, want 1 to 268435456",
		"h100 fp8-tensor 1 1 -5": "k: got -5, want 1 to 268435456",
	} {
		if _, err := Check(request(t, request1)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", request1, err, want)
		}
	}
}
