package interop

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

// A simulated unit is one of ours with an instruction of MMA-Sim.
type simulated struct {
	class, arch, instruction string
	unit                     *mma.Unit
}

// name returns the instruction, without M and N if MMA-Sim computes the same for all.
func (s simulated) name() string {
	i := s.instruction
	if s.class == "WGMMA" || strings.HasPrefix(s.class, "TCGen05") {
		i = i[strings.LastIndex(strings.SplitN(i, ".", 2)[0], "k"):]
	}
	return strings.Join([]string{s.class, s.arch, i}, "\t")
}

// architectures maps our models to the names of MMA-Sim.
var architectures = map[string]string{
	"volta-mma": "Volta", "turing-mma": "Turing", "ampere-mma": "Ampere", "ada-mma": "Ada Lovelace", "hopper-mma": "Hopper",
	"blackwell-mma": "Blackwell", "rtxblackwell-mma": "RTX Blackwell", "hopper-wgmma": "Hopper",
	"cdna1-mfma": "CDNA1", "cdna2-mfma": "CDNA2", "cdna2-mfma-1k": "CDNA2", "cdna3-mfma": "CDNA3",
}

// simulations returns the instructions of MMA-Sim that compute what u computes.
func simulations(u *mma.Unit) (list []simulated) {
	arch := architectures[u.Model.Name]
	add := func(class, arch, instruction string) {
		list = append(list, simulated{class, arch, instruction, u})
	}
	scale := ""
	if u.Scale != nil {
		scale = u.Scale.Name
	}
	for _, name := range u.Instructions() {
		fields := strings.Split(name, ".")
		types := fmt.Sprintf("%s.%s.%s", u.Out, u.A, u.B)
		switch {
		case u.Model.Name == "cdna4-mfma-scale": // MMA-Sim ends with CDNA3
		case strings.HasPrefix(name, "v_mfma_"):
			add("MFMA", arch, strings.TrimPrefix(name, "v_mfma_"))
		case fields[0] == "wgmma":
			add("WGMMA", arch, fmt.Sprintf("m64n8k%d.%s", u.K, types))
		case fields[0] == "tcgen05" && u.Scale == nil:
			add("TCGen05MMA", "Blackwell", fmt.Sprintf("m64n8k%d.%s.%s", u.K, fields[3], types))
		case fields[0] == "tcgen05":
			add("TCGen05MMABlockScale", "Blackwell", fmt.Sprintf("m128n8k%d.%s.%s.%s.%s", u.K, fields[3], fields[5], types, scale))
			if u.Model.Name == "blackwell-mxf4" { // mxf4nvf4 has blocks of 32 too, and adds as mxf4 does
				add("TCGen05MMABlockScale", "Blackwell", fmt.Sprintf("m128n8k64.kind::mxf4nvf4.block32.%s.%s", types, scale))
			}
		case u.Scale != nil:
			shape := "m16n8k32.kind::mxf8f6f4"
			if u.K == 64 {
				shape = "m16n8k64." + fields[6]
			}
			add("MMABlockScale", "RTX Blackwell", fmt.Sprintf("%s.block%d.%s.%s.%s", shape, u.Block, types, u.Out, scale))
			if u.Model.Name == "blackwell-mxf4" {
				add("MMABlockScale", "RTX Blackwell", fmt.Sprintf("m16n8k64.kind::mxf4nvf4.block32.%s.%s.%s", types, u.Out, scale))
			}
		case strings.HasSuffix(u.Model.Name, "-mma") && u.A.Bytes == 1 && (arch == "Hopper" || arch == "Blackwell"): // not in MMA-Sim
		case u.A.Scalar == nil && strings.HasPrefix(fields[3], "m16n8") && arch != "Hopper": // in MMA-Sim only there
		case strings.Contains(name, "kind::f8f6f4"):
			add("MMA", arch, fmt.Sprintf("m16n8k%d.kind::f8f6f4.%s.%s", u.K, types, u.Out))
		default:
			add("MMA", arch, fmt.Sprintf("%s.%s.%s", fields[3], types, u.Out))
		}
	}
	return list
}

// allSimulations returns the simulations of every unit, with every K.
func allSimulations(t *testing.T) (list []simulated) {
	t.Helper()
	for _, m := range mma.Models() {
		for _, usual := range m.Units() {
			for _, k := range usual.Ks() {
				u, err := m.Unit(mma.Options{A: usual.A, B: usual.B, Scale: usual.Scale, Out: usual.Out, K: k})
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, simulations(u)...)
			}
		}
	}
	return list
}

// TestMMASim compares every unit with MMA-Sim on adversarial cases, and checks that every
// instruction of MMA-Sim has a unit or a reason for having none.
func TestMMASim(t *testing.T) {
	interpreter := bitsTorch("ninja==1.13.2", "mmasim==2.1.1")(t)
	const cases = 2048
	dir := t.TempDir()
	list := allSimulations(t)
	var rows strings.Builder
	for i, s := range list {
		scale := "-"
		if s.unit.Scale != nil {
			scale = s.unit.Scale.Name
		}
		fmt.Fprintf(&rows, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\n", i, s.class, s.arch, s.instruction, s.unit.A, s.unit.B, s.unit.Out,
			s.unit.K, scale, s.unit.Scales(s.unit.K))
		var data []byte
		for _, c := range hardCases(s.unit, cases) {
			data = appendCase(data, s.unit, c)
		}
		writeFile(t, dir, fmt.Sprintf("%d.cases", i), data)
	}
	writeFile(t, dir, "rows.tsv", []byte(rows.String()))
	script(t, interpreter, "run_mmasim.py", dir)

	reasons := map[string]int{}
	var compared []string
	for i, s := range list {
		compared = append(compared, s.name())
		results := read(t, dir, fmt.Sprintf("%d.results", i))
		for j, c := range hardCases(s.unit, cases) {
			got := c.Dot(s.unit)
			want := load(results[j*s.unit.Out.Bytes:], s.unit.Out)
			if got == want {
				continue
			}
			if why := reason(s.unit, c, got, want); why != "" {
				reasons[why]++
				continue
			}
			t.Errorf("%s %s %s: case %d has %#x, MMA-Sim %#x", s.class, s.arch, s.instruction, j, got, want)
			break
		}
	}
	t.Logf("%d instructions, %d cases each", len(list), cases)
	for why, n := range reasons {
		t.Logf("%d results differ: %s", n, why)
	}
	for name := range strings.Lines(string(read(t, dir, "instructions.txt"))) {
		if name = strings.TrimSuffix(name, "\n"); !slices.Contains(compared, name) && !slices.Contains(uncompared, name) {
			t.Errorf("MMA-Sim has %q, which is compared with no unit", name)
		}
	}
}

// reason returns why a result differs from that of MMA-Sim, "" if nothing explains it.
func reason(u *mma.Unit, c mmatest.Case, got, want uint64) string {
	g, w, start := u.Out.Value(got), u.Out.Value(want), u.Out.Value(c.C)
	amd := strings.HasPrefix(u.Model.Name, "cdna")
	switch {
	case (amd || u.Out.Scalar == nil) && g != g && w != w:
		return "MMA-Sim does not model the payload of NaNs of AMD and of FP64"
	case u.Model.Name == "cdna1-mfma" && g == 0 && w == 0:
		return "CDNA1 adds exactly, to either zero"
	// MMA-Sim gives Inf and NaN the exponent -1. CDNA3's FP8 rule drops a C that is 25 bits
	// below the largest product, which includes such a C. We propagate it.
	case u.Model.Name == "cdna3-mfma" && u.A.Bytes == 1 && g-g != 0:
		const why = "MMA-Sim drops a C of NaN or Inf in CDNA3's FP8"
		_, steps := u.Explain(c.A, c.B, c.C, nil, nil)
		special := start-start != 0
		for _, s := range steps[:len(steps)-1] { // the C of a second instruction
			special = special || s.Value-s.Value != 0
		}
		if special {
			return why
		}
	}
	return ""
}

// uncompared are the instructions of MMA-Sim without a unit here.
var uncompared = []string{
	"MMA\tTuring\tm8n8k4.f16.f16.f16.f16", "MMA\tTuring\tm8n8k4.f32.f16.f16.f32", // Volta's
	"MMA\tTuring\tm8n8k4.f32.f16.f16.f16", "MMA\tVolta\tm8n8k4.f32.f16.f16.f16", // C in FP16, the result in FP32
}

// hardCases returns cases for a unit, the same in each call.
func hardCases(u *mma.Unit, n int) []mmatest.Case {
	source := mmatest.Source(u.K)
	list := make([]mmatest.Case, n)
	for i := range list {
		list[i] = mmatest.Hard(u, u.K, &source)
	}
	return list
}

// appendCase appends a case as microscale mma --raw reads it.
func appendCase(data []byte, u *mma.Unit, c mmatest.Case) []byte {
	put := func(t *mma.Type, codes ...uint64) {
		for _, code := range codes {
			for i := range t.Bytes {
				data = append(data, byte(code>>(8*i)))
			}
		}
	}
	put(u.A, c.A...)
	put(u.B, c.B...)
	put(u.Out, c.C)
	return append(append(data, c.ScaleA...), c.ScaleB...)
}

// load returns the first little-endian code of data.
func load(data []byte, t *mma.Type) uint64 {
	var word [8]byte
	copy(word[:], data[:t.Bytes])
	return binary.LittleEndian.Uint64(word[:])
}

func writeFile(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

var recorded = flag.String("recorded", "", "checkout of north-numerical-computing/MATLAB-tensor-core, whose outputs of GPUs mma is "+
	"compared with")

// TestRecorded compares our units with the outputs of eight GPUs.
func TestRecorded(t *testing.T) {
	if *recorded == "" {
		skipf(t, "no recorded outputs of GPUs: name a checkout of MATLAB-tensor-core (commit b12b5a7) with -recorded DIR")
	}
	models := map[string]string{"V100": "volta-mma", "A100": "ampere-mma", "A2": "ampere-mma", "Ada": "ada-mma", "L40S": "ada-mma",
		"H100": "hopper-mma", "H200": "hopper-mma", "B200": "blackwell-mma"}
	files, err := filepath.Glob(filepath.Join(*recorded, "model_validation", "*", "*", "d_*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const published = 48
	if len(files) != published {
		t.Errorf("%d files of results, want %d", len(files), published)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		operands, gpu := filepath.Base(dir), filepath.Base(filepath.Dir(dir))
		result := strings.TrimSuffix(file[strings.LastIndex(file, "_")+1:], ".txt")
		t.Run(gpu+"/"+operands+"/"+result, func(t *testing.T) {
			name := models[gpu]
			fp8 := strings.HasPrefix(operands, "E")
			// FP8 with FP32 results on Hopper was recorded with wgmma, without C.
			wgmma := name == "hopper-mma" && fp8 && result == "fp32"
			if wgmma {
				name = "hopper-wgmma"
			}
			u := recordedUnit(t, name, operands, result)
			column := func(letter, format string) [][]float32 {
				return readRecorded(t, filepath.Join(dir, letter+"_"+gpu+"_"+format+".txt"))
			}
			a, b, c, d := column("a", operands), column("b", operands), column("c", "fp32"), column("d", result)
			if len(a) == 0 || len(a) != len(b) || len(a) != len(c) || len(a) != len(d) {
				t.Fatalf("%d, %d, %d and %d rows", len(a), len(b), len(c), len(d))
			}
			for i := range a {
				start := encode(u.Out, c[i][0])
				if wgmma {
					start = 0
				}
				got := u.Out.Value(u.Dot(padded(u.A, a[i], u.K), padded(u.B, b[i], u.K), start, nil, nil))
				if got != float64(d[i][0]) {
					t.Fatalf("row %d: %v, recorded %v", i+1, got, d[i][0])
				}
			}
		})
	}
}

func recordedUnit(t *testing.T, model, operands, result string) *mma.Unit {
	t.Helper()
	m, err := mma.Lookup(model)
	if err != nil {
		t.Fatal(err)
	}
	a, err := mma.LookupType(operands)
	if err != nil {
		t.Fatal(err)
	}
	out, err := mma.LookupType(result)
	if err != nil {
		t.Fatal(err)
	}
	u, err := m.Unit(mma.Options{A: a, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// encode returns the code of a value, rounded to nearest even.
func encode(u *mma.Type, v float32) uint64 {
	return uint64(u.Scalar.EncodeWith(v, format.Conversion{Overflow: format.NonSaturating}, 0))
}

// padded returns the codes of values, padded with zeros to k.
func padded(u *mma.Type, values []float32, k int) []uint64 {
	codes := make([]uint64, k)
	for i, v := range values {
		codes[i] = encode(u, v)
	}
	return codes
}

// readRecorded reads rows of float32 patterns, in hexadecimal or binary digits.
func readRecorded(t *testing.T, file string) (rows [][]float32) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var row []float32
		for _, word := range strings.Fields(line) {
			base := 16
			if len(word) == 32 {
				base = 2
			}
			bits, err := strconv.ParseUint(word, base, 32)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			row = append(row, math.Float32frombits(uint32(bits)))
		}
		rows = append(rows, row)
	}
	return rows
}
