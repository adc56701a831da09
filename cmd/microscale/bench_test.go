package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/cpu"
)

// tiny are bench commands that take milliseconds.
var tiny = []string{
	"limits --size 0.1",
	"limits --size 0.1 --threads 1",
	"quantize --format mxfp8 --m 3 --k 64",
	"quantize --format fp8-tensor --m 3 --k 64",
	"quantize --format nvfp4 --m 3 --k 50 --threads 0",
	"quantize --format mxfp4 --m 3 --k 64 --unfused",
	"quantize --format nvfp4 --m 30 --k 64 --both",
	"quantize --format mxfp4 --from bf16 --m 3 --k 64",
	"dequantize --format fp8-block128 --m 130 --k 100",
	"gemm --format mxfp8 --m 5 --n 6 --k 64",
	"gemm --format nvfp4 --m 64 --n 64 --k 64 --threads 0 --packed",
	"gemm --format mxfp8 --activations bf16 --m 5 --n 6 --k 64",
	"checkpoint --formats mxfp8,nvfp4 --size 0.001",
	"linear --recipes bf16,mxfp8,nvfp4 --m 128 --n 128 --k 128 --threads 0",
}

const noTime = " --budget 1us"

// bestTier restores the kernels after a test with --kernel.
func bestTier(t *testing.T) {
	best := cpu.Best()
	t.Cleanup(func() {
		if err := cpu.Force(best); err != nil {
			t.Error(err)
		}
	})
}

// TestBenchJSON checks the shape of the documents: an array with the requested operation first,
// and its keys.
func TestBenchJSON(t *testing.T) {
	bestTier(t)
	for _, line := range tiny {
		for _, tier := range cpu.Tiers() {
			t.Run(line+"/kernel="+tier.String(), func(t *testing.T) {
				status, stdout, stderr := execute("", strings.Fields("bench "+line+noTime+" --json --kernel "+tier.String())...)
				if status != exitDone {
					t.Fatalf("exit status %d: %s", status, stderr)
				}
				var list []map[string]any
				if err := json.Unmarshal([]byte(stdout), &list); err != nil {
					t.Fatal(err)
				}
				if len(list) < 2 {
					t.Fatalf("%d results", len(list))
				}
				for i, r := range list {
					for _, key := range []string{"op", "format", "m", "n", "k", "threads", "seconds", "rate", "unit", "limit", "fraction", "kernel",
						"spread", "runs"} {
						if _, ok := r[key]; !ok {
							t.Errorf("result %d lacks %s", i, key)
						}
					}
					if seconds, ok := r["seconds"].(float64); !ok || seconds <= 0 {
						t.Errorf("result %d took %v s", i, r["seconds"])
					}
					if r["runs"] == 1.0 && r["spread"] != nil {
						t.Errorf("result %d: the spread of one run is %v", i, r["spread"])
					}
					if limit, ok := r["limit"].(float64); ok && math.Abs(r["rate"].(float64)/limit-r["fraction"].(float64)) > 1e-9 {
						t.Errorf("result %d: rate %v, limit %v, fraction %v", i, r["rate"], limit, r["fraction"])
					}
				}
				op, first := strings.Fields(line)[0], list[0]
				if op == "limits" {
					if first["op"] != "read" || first["limit"] != nil || first["fraction"] != nil {
						t.Errorf("the first limit is %v", first)
					}
					return
				}
				name, _, _ := strings.Cut(strings.Fields(line)[2], ",")
				if first["op"] != op || first["limit"] == nil || first["format"] != name {
					t.Errorf("%s comes first: %v", op, first)
				}
			})
		}
	}
}

// TestBenchMarks checks that documents have the fields that distinguish runs of the same sizes,
// and only those of their operation.
func TestBenchMarks(t *testing.T) {
	for _, tc := range []struct{ line, mark string }{
		{"gemm --format mxfp8 --m 5 --n 6 --k 64 --packed", "packed"},
		{"gemm --format mxfp8 --m 5 --n 6 --k 64", ""},
		{"gemv --format mxfp8 --n 64 --k 64", ""},
		{"quantize --format mxfp8 --m 64 --k 64 --both", "both"},
		{"quantize --format mxfp8 --m 64 --k 64", ""},
	} {
		status, stdout, stderr := execute("", strings.Fields("bench "+tc.line+noTime+" --json")...)
		var list []map[string]any
		if err := json.Unmarshal([]byte(stdout), &list); status != exitDone || err != nil {
			t.Fatalf("%s: exit status %d, %v: %s", tc.line, status, err, stderr)
		}
		for i, r := range list {
			for _, mark := range []string{"packed", "both"} {
				want := any(nil)
				if i == 0 && mark == tc.mark {
					want = true
				}
				if r[mark] != want {
					t.Errorf("%s: of result %d, %s is %v", tc.line, i, mark, r[mark])
				}
			}
		}
	}
}

// TestBenchText checks that the text fits 80 columns and has units.
func TestBenchText(t *testing.T) {
	bestTier(t)
	for _, line := range append([]string{"--help", "limits --help", "quantize --help", "dequantize --help", "gemm --help", "gemv --help",
		"linear --help", "checkpoint --help", "all --help"}, tiny...) {
		args := "bench " + line
		if !strings.Contains(line, "--help") {
			args += noTime
		}
		status, stdout, stderr := execute("", strings.Fields(args)...)
		if status != exitDone {
			t.Fatalf("%s: exit status %d: %s", line, status, stderr)
		}
		for _, l := range strings.Split(stdout, "\n") {
			if n := len([]rune(l)); n > 80 {
				t.Errorf("%s: a line of %d columns: %s", line, n, l)
			}
			if strings.TrimRight(l, " ") != l {
				t.Errorf("%s: spaces end the line %q", line, l)
			}
		}
		if !strings.Contains(line, "--help") && !strings.Contains(stdout, "GB/s") && !strings.Contains(stdout, "OP/s") {
			t.Errorf("%s: no unit in\n%s", line, stdout)
		}
	}
}

// TestBenchUsage checks wrong command lines.
func TestBenchUsage(t *testing.T) {
	bestTier(t)
	processors := fmt.Sprintf("%d: this process has %s", bench.Processors(), show.Counted(bench.Processors(), "processor"))
	for _, tc := range []struct{ line, want string }{
		{"bench lim", `unknown command "lim": did you mean limits?`},
		{"bench limits 1", `"1"`},
		{"bench limits --size 0", `--size 0: give a number of MB`},
		{"bench limits --size -1", `--size -1: give a number of MB`},
		{"bench limits --size nan", `--size NaN: give a number of MB`},
		{"bench limits --size 1e-300", `--size 1e-300: give a number of MB from 0.001 to 1073`},
		{"bench limits --size 0.0009", `--size 0.0009: give a number of MB from 0.001 to 1073`},
		{"bench limits --size 1074", `--size 1074: give a number of MB from 0.001 to 1073`},
		{"bench limits --threads -1", `--threads -1: give 0 to ` + processors},
		{"bench limits --threads 1000000", `--threads 1000000: give 0 to ` + processors},
		{"bench limits --budget 0s", `--budget 0s: give a positive time`},
		{"bench limits --budget soon", `--budget: `},
		{"bench limits --kernel sse", `--kernel: unknown kernel tier "sse": use one of plain, neon, neondot, neonbf16, neoni8mm, ` +
			`avx2, avxvnni, avx512f, avx512vnni, avx512vbmi, avx512, amx`},
		{"bench quantize", `--format is missing`},
		{"bench quantize --format mxfp9", `--format: unknown block format "mxfp9"`},
		{"bench quantize --format mxfp8 --from e5m2", `--from: unsupported format "e5m2": use one of f32, bf16`},
		{"bench quantize --format mxfp8 --m 0", `--m 0: give a size from 1 to `},
		{"bench quantize --format mxfp8 --k -3", `--k -3: give a size from 1 to `},
		{"bench quantize --format mxfp8 --both --unfused", `--both: unsupported with --unfused: omit one`},
		{"bench quantize --format fp8-row --unfused", `--unfused: separate passes support nvfp4, and e8m0 scales of 32 elements along a row: ` +
			`got fp8-row`},
		{"bench quantize --format mxfp8 --unfused --k 33", `--unfused: separate passes support rows of a multiple of 32 elements: got 33`},
		{"bench quantize --format mxfp8 --unfused --from bf16", `--unfused: separate passes support sources of f32: got bf16`},
		{"bench dequantize", `--format is missing`},
		{"bench dequantize --format mxfp8 --from bf16", `--from: unsupported format "bf16": use one of f32`},
		{"bench gemm", `--format is missing`},
		{"bench gemm --format mxfp8 --n 1048577", `--n 1048577: give a size from 1 to 1048576`},
		{"bench gemm --format mxfp8 --activations x", `--activations: unknown block format "x"`},
		{"bench gemv", `--format is missing`},
		{"bench linear --recipes bf16,mxfp9", `--recipes: unknown recipe "mxfp9": did you mean mxfp8 or mxfp6 or mxfp4?`},
		{"bench linear --recipes bf16,BF16", `--recipes: bf16 is named twice`},
		{"bench linear --m 33", `--m 33: recipe delayed needs a multiple of 8`},
		{"bench all --largest 9000", `--largest 9000: give a power of two from 256 to 8192`},
		{"bench all --largest 300", `--largest 300: give a power of two from 256 to 8192, and --large for 16384`},
		{"bench all --formats mxfp8,x", `--formats: unknown block format "x"`},
		{"bench all --formats bf16", `--formats: bf16 has no scales`},
		{"bench all --formats mxfp8,MXFP8", `--formats: mxfp8 is named twice`},
		{"bench all --largest 256 --large", `--largest and --large exclude each other`},
		{"bench checkpoint --formats=", `--formats: unknown block format ""`},
		{"bench checkpoint --formats bf16", `--formats: bf16 has no scales`},
		{"bench checkpoint --formats mxfp8,mxfp8", `--formats: mxfp8 is named twice`},
		{"bench checkpoint --size 1e6", `--size 1e+06: give a number of GB`},
		{"bench llm", `want MODEL or --random, got both or none`},
		{"bench llm model --random 1B", `want MODEL or --random, got both or none`},
		{"bench llm --random 1G", `unknown shape "1G": want 135M, 1B, 3B, 8B`},
		{"bench llm --random 1B --rounds 0", `--rounds is 0: want at least 1`},
		{"bench llm --random 1B --prompt 0 --generate 0", `--prompt and --generate are 0: want one of them above 0`},
	} {
		t.Run(tc.line, func(t *testing.T) {
			status, stdout, stderr := execute("", strings.Fields(tc.line)...)
			if status != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 2 {
				t.Errorf("exit status %d, standard output %q, standard error %q, want %q", status, stdout, stderr, tc.want)
			}
		})
	}
}

// TestBenchHelp checks that the help has an example of every operation.
func TestBenchHelp(t *testing.T) {
	started := false
	for _, cmd := range rootCommand(&started).Commands() {
		if cmd.Name() != "bench" {
			continue
		}
		for _, sub := range cmd.Commands() {
			if !strings.Contains(sub.Example, "microscale bench "+sub.Name()) {
				t.Errorf("bench %s has no example", sub.Name())
			}
		}
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1234: "1234", 999.6: "1000", 99.96: "100", 12.345: "12.3", 1.2345: "1.23",
		0.12345: "0.123", 0.0012345: "0.00123", -2.5: "-2.50", math.NaN(): "-", math.Inf(1): "-"} {
		if got := show.ThreeDigits(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{2: "2.00 s", 0.5: "500 ms", 1.5e-3: "1.50 ms", 2.5e-6: "2.50 µs", 3e-9: "3.00 ns"} {
		if got := secondsText(v); got != want {
			t.Errorf("%v s is written %s, want %s", v, got, want)
		}
	}
}

// TestPrintResult checks that every figure of a result is printed with its unit.
func TestPrintResult(t *testing.T) {
	var b strings.Builder
	r := bench.Result{
		Op: "gemm", Format: "mxfp4", Source: "mxfp8", M: 3, N: 4, K: 5, Threads: 2, Kernel: "some", LimitBy: "peak, this", Limit: 4,
		Unit: bench.Floats, Work: 2e9,
		Time: bench.Sample{Median: 1, Deviation: 0.1, Min: 0.5, Max: 1.5, Runs: 7},
	}
	if err := printResult(&b, []bench.Result{r}); err != nil {
		t.Fatal(err)
	}
	const want = `work     gemm 3×4×5 mxfp8·mxfp4, 2 threads, kernel some
time     1.00 s (±10%, 7 runs, 500 ms to 1.50 s)
rate     2.00 GFLOP/s
limit    4.00 GFLOP/s (peak, this)
fraction 0.50
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

// TestTimeText checks that the text and the document mark runs of a part of the work, and give
// the times of that part.
func TestTimeText(t *testing.T) {
	parts := bench.Sample{Median: 1, Deviation: 0.1, Min: 0.5, Max: 2, Runs: 7, Parts: 10}
	single := bench.Sample{Median: 1, Deviation: math.NaN(), Runs: 1, Parts: 10}
	for want, s := range map[string]bench.Sample{
		"1.00 s (±10%, 7 runs of 1/10 of it, 50.0 ms to 200 ms each)": parts,
		"1.00 s (1 run of 1/10 of it, spread unknown)":                single,
	} {
		if got := timeText(bench.Result{Time: s}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	// 40 MB take several passes of each thread, 0.1 MB one pass of one thread.
	for line, want := range map[string]bool{"--m 1280 --k 8192": true, "--m 128 --k 128": false} {
		status, stdout, stderr := execute("", strings.Fields("bench quantize --format mxfp8 --threads 1 --json "+line+noTime)...)
		var list []benchDocument
		if err := json.Unmarshal([]byte(stdout), &list); status != exitDone || err != nil {
			t.Fatalf("exit status %d, %v: %s", status, err, stderr)
		}
		for _, r := range list {
			if got := r.Parts > 1; got != want {
				t.Errorf("%s %s: %d parts", r.Op, line, r.Parts)
			}
		}
	}
}

// TestBenchLinear checks that recipes are in the requested order, and that the baseline is
// always measured and the others are relative to it.
func TestBenchLinear(t *testing.T) {
	status, stdout, stderr := execute("", strings.Fields("bench linear --recipes mxfp8,nvfp4 --m 128 --n 256 --k 128 --json"+noTime)...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatal(err)
	}
	var recipes []string
	for _, r := range list {
		recipes = append(recipes, r["recipe"].(string))
		seconds := func(key string) float64 { return r[key].(float64) }
		if ratio := seconds("seconds") / list[len(list)-1]["seconds"].(float64); math.Abs(seconds("over_bf16")-ratio) > 1e-9 {
			t.Errorf("%v: over_bf16 is %v, want %v", r["recipe"], r["over_bf16"], ratio)
		}
		for _, sum := range []float64{seconds("forward_seconds") + seconds("backward_seconds"),
			seconds("gemm_seconds") + seconds("other_seconds")} {
			if math.Abs(sum/seconds("seconds")-1) > 1e-6 { // of a single run
				t.Errorf("%v: the parts of %v s make %v s", r["recipe"], seconds("seconds"), sum)
			}
		}
		if work := seconds("rate") * 1e9 * seconds("seconds"); math.Abs(work/(6*128*256*128)-1) > 1e-9 {
			t.Errorf("%v: the rate counts %v operations", r["recipe"], work)
		}
	}
	if got := strings.Join(recipes, " "); got != "mxfp8 nvfp4 bf16" {
		t.Errorf("measured %s", got)
	}
}
