package interop

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// icedNames are the names that iced-x86 has for the features in package cpu.
var icedNames = map[string]string{
	"AVX": "X86AVX", "AVX2": "X86AVX2", "FMA": "X86FMA", "F16C": "X86F16C", "BMI2": "X86BMI2", "POPCNT": "X86POPCNT", "AVX_VNNI": "X86AVXVNNI",
	"AVX512F": "X86AVX512F", "AVX512BW": "X86AVX512BW", "AVX512DQ": "X86AVX512DQ", "AVX512VL": "X86AVX512VL",
	"AVX512_VNNI": "X86AVX512VNNI", "AVX512_VBMI": "X86AVX512VBMI", "AVX512_BF16": "X86AVX512BF16",
	"AMX_TILE": "X86AMXTile", "AMX_BF16": "X86AMXBF16",
}

// icedBase are features that every amd64 processor has.
var icedBase = []string{"INTEL8086", "INTEL186", "INTEL386", "INTEL486", "X64", "CMOV", "SSE", "SSE2", "PREFETCHW", "MULTIBYTENOP"}

// assembly ends the symbols of functions in assembly; those without it are wrappers for Go.
const assembly = ".abi0"

// TestNeeds compares the processor features that the generator of assembly states for each function with those
// that a foreign decoder finds in the machine code of the program: a kernel that a processor cannot run would end
// the process.
func TestNeeds(t *testing.T) {
	slow.Full(t, "it decodes all machine code in Python; internal/asm checks what each form of an instruction needs")
	interpreter := python(t, "iced-x86==1.21.0")
	dir := t.TempDir()
	program := filepath.Join(dir, "microscale")
	build := exec.Command("go", "build", "-o", program, "..")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=") // with its symbols
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stated := statedNeeds(t)
	writeFunctions(t, program, dir)
	if err := os.WriteFile(filepath.Join(dir, "wanted"), []byte(strings.Join(slices.Collect(maps.Keys(stated)), assembly+"\n")+assembly),
		0o644); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	out := scriptOutput(t, interpreter, "needs.py", filepath.Join(dir, "code"), filepath.Join(dir, "functions"), filepath.Join(dir, "wanted"))
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		name := strings.TrimSuffix(words[0], assembly)
		seen[name] = true
		if got := found(t, words[1:]); !slices.Equal(got, stated[name]) {
			t.Errorf("%s: states %v, and its machine code needs %v", name, stated[name], got)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stated)) {
		if !seen[name] {
			t.Errorf("%s is not in the program", name)
		}
	}
	t.Logf("%d functions compared", len(seen))
}

// found returns the names in package cpu of what iced-x86 lists, and of what these features imply.
func found(t *testing.T, features []string) []string {
	t.Helper()
	all := map[string]bool{}
	for _, f := range features {
		name, ok := icedNames[f]
		switch {
		case slices.Contains(icedBase, f):
			continue
		case !ok:
			t.Errorf("iced-x86 lists %s, which package cpu does not know", f)
		}
		all[name] = true
		if strings.HasPrefix(name, "X86AVX512") {
			all["X86AVX512F"] = true
		}
		if slices.Contains([]string{"X86AVX2", "X86FMA", "X86F16C", "X86AVXVNNI"}, name) {
			all["X86AVX"] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// statedNeeds returns the features in the constants of the generated files, by the function's symbol.
func statedNeeds(t *testing.T) map[string][]string {
	t.Helper()
	root := filepath.Join("..", "..", "..") // of the module
	constant := regexp.MustCompile(`(?m)^\t(\w+)Needs += (.*)$`)
	stated := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(filepath.Base(file), "z") || !strings.HasSuffix(file, "_amd64.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
			var features []string
			for _, f := range strings.Split(m[2], " | ") {
				if f != "cpu.Set(0)" {
					features = append(features, strings.TrimPrefix(f, "cpu."))
				}
			}
			slices.Sort(features)
			stated[path.Join("github.com/microscale-go/microscale", filepath.ToSlash(folder))+"."+m[1]] = features
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(stated) < 150 {
		t.Fatalf("got %d generated functions", len(stated))
	}
	return stated
}

// writeFunctions writes the machine code of a program and the list of its functions to dir.
func writeFunctions(t *testing.T, program, dir string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value >= text.Addr && s.Value+s.Size <= text.Addr+text.Size && !strings.ContainsRune(s.Name,
			' ') {
			fmt.Fprintln(&list, s.Value, s.Value-text.Addr, s.Size, s.Name)
		}
	}
	for name, data := range map[string][]byte{"code": code, "functions": []byte(list.String())} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
