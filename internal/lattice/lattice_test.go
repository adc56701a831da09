package lattice

import (
	"fmt"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// order is the import lattice: each line lists a package and those of this module that it may
// import, all listed before it; a line that begins with four spaces continues the line before it.
// "*" stands for all packages above. Test files may import any package of the module. Do not edit it
// to fix a build: the order is the design, and a package that needs another import may belong
// elsewhere.
const order = `
.:
internal/lattice:
internal/mutate:
internal/memory:
internal/limits:
internal/parallel:
internal/naming:
internal/cpu: internal/naming
internal/slow:
internal/cpu/cputest: internal/cpu internal/slow
internal/asm: internal/cpu
internal/configjson:
internal/guard:
internal/ramdisk:
internal/durable:
internal/ranges:
format: internal/naming
gguf/ggml: internal/cpu format
mma: internal/naming internal/cpu format
mma/mmatest: format mma
tensor: internal/cpu format
measure: internal/cpu tensor
safetensors: internal/limits format tensor
safetensors/checksum: safetensors
gguf: internal/limits safetensors
quant: internal/memory internal/parallel internal/naming internal/cpu format tensor
hardware/device: internal/naming format quant
layout: internal/naming tensor quant
gemm: internal/memory internal/parallel internal/cpu format mma tensor quant layout
profile: internal/naming format quant
generation/sampling: quant
comm: internal/memory internal/parallel internal/naming format tensor quant
comm/commtest: quant comm
comm/mpi: comm
tokenizer:
jinja:
recipe: internal/limits internal/naming format mma quant gemm
hardware/cost: format quant hardware/device layout recipe
nn: internal/memory internal/parallel internal/naming internal/cpu format mma tensor quant gemm comm recipe
hf: internal/limits internal/parallel internal/configjson safetensors safetensors/checksum gguf
hf/sample: internal/durable format tensor safetensors hf
hf/hub: internal/limits internal/ranges safetensors gguf hf
family: internal/configjson
checkpoint: internal/limits internal/parallel internal/naming internal/configjson format gguf/ggml tensor measure safetensors quant layout
    profile hf family
checkpoint/llamacpp: internal/limits internal/configjson format gguf/ggml tensor safetensors safetensors/checksum gguf quant tokenizer hf
    family checkpoint
decoder: internal/memory internal/parallel internal/durable tensor safetensors gguf quant gemm comm recipe nn hf family checkpoint
    checkpoint/llamacpp
train: internal/memory internal/limits internal/parallel internal/naming internal/cpu internal/configjson internal/durable format mma
    tensor safetensors safetensors/checksum quant comm recipe nn hf decoder
checkpoint/client: internal/naming gguf/ggml quant family checkpoint
calibration: internal/limits internal/memory internal/parallel internal/cpu internal/durable safetensors safetensors/checksum tensor gguf
    quant gemm comm
verify: tensor measure safetensors quant hf calibration checkpoint checkpoint/client
convert/internal/lossless: format quant
convert: internal/limits internal/parallel internal/naming internal/configjson internal/durable format tensor measure safetensors
    safetensors/checksum gguf gguf/ggml profile quant hf family calibration checkpoint checkpoint/llamacpp checkpoint/client verify
    convert/internal/lossless
generation: internal/memory internal/limits internal/configjson tensor gguf quant generation/sampling tokenizer hf checkpoint/llamacpp
    decoder
cmd/microscale/internal/host: internal/cpu
cmd/microscale/internal/show:
cmd/microscale/internal/report: internal/limits internal/durable cmd/microscale/internal/show
cmd/microscale/internal/evaluation/windows: internal/limits internal/parallel internal/naming internal/durable tensor safetensors/checksum
    comm calibration
cmd/microscale/internal/layouts: internal/naming format gguf/ggml quant layout
cmd/microscale/internal/chat: jinja generation
cmd/microscale/internal/bench: internal/memory internal/cpu format tensor safetensors quant gemm recipe nn hf decoder convert
    cmd/microscale/internal/host cmd/microscale/internal/report
cmd/microscale/internal/flags: internal/limits internal/naming internal/configjson internal/durable format mma gguf quant profile
    generation/sampling recipe nn checkpoint checkpoint/llamacpp decoder train calibration checkpoint/client convert
    cmd/microscale/internal/show
cmd/microscale/internal/ranks: internal/naming comm comm/mpi recipe train cmd/microscale/internal/show cmd/microscale/internal/flags
cmd/microscale/internal/push/pushtest:
cmd/microscale/internal/push: internal/parallel internal/ranges safetensors safetensors/checksum hf hf/hub checkpoint verify
    cmd/microscale/internal/show
cmd/microscale/internal/store/storetest:
cmd/microscale/internal/store: internal/limits internal/parallel internal/durable internal/ranges safetensors gguf hf checkpoint/llamacpp
    verify convert
cmd/microscale/internal/input: internal/memory safetensors gguf hf hf/sample hf/hub checkpoint/llamacpp convert generation
    cmd/microscale/internal/show cmd/microscale/internal/store
cmd/microscale/internal/lint: internal/limits internal/configjson format safetensors quant layout hf family
    checkpoint checkpoint/client convert cmd/microscale/internal/show
cmd/microscale/internal/budget: family checkpoint convert
cmd/microscale/internal/serve: generation/sampling generation cmd/microscale/internal/chat
cmd/microscale/internal/demo: internal/durable
cmd/microscale/internal/console: generation/sampling generation cmd/microscale/internal/show cmd/microscale/internal/chat
    cmd/microscale/internal/input
cmd/microscale/internal/blocksize: internal/naming format tensor measure quant cmd/microscale/internal/show cmd/microscale/internal/report
cmd/microscale/internal/numbers: format mma tensor measure quant profile cmd/microscale/internal/show
cmd/microscale/internal/ggufplan: gguf hf convert
cmd/microscale/internal/catalog: format mma quant hardware/device checkpoint/client cmd/microscale/internal/show
    cmd/microscale/internal/flags cmd/microscale/internal/numbers
cmd/microscale/internal/identify: format tensor safetensors safetensors/checksum quant profile checkpoint
    cmd/microscale/internal/show
cmd/microscale/internal/difference: format measure quant checkpoint cmd/microscale/internal/show
cmd/microscale/internal/conversion: internal/configjson measure safetensors quant hf checkpoint verify train convert
    cmd/microscale/internal/show cmd/microscale/internal/lint
cmd/microscale/internal/playground: format profile quant hf checkpoint convert cmd/microscale/internal/show cmd/microscale/internal/lint
    cmd/microscale/internal/numbers cmd/microscale/internal/identify cmd/microscale/internal/conversion
cmd/microscale/playground: cmd/microscale/internal/report cmd/microscale/internal/playground
cmd/microscale/internal/planning: hardware/device hardware/cost cmd/microscale/internal/show cmd/microscale/internal/layouts
    cmd/microscale/internal/report cmd/microscale/internal/flags
cmd/microscale/internal/training: mma tensor measure quant recipe nn checkpoint decoder train cmd/microscale/internal/host
    cmd/microscale/internal/show cmd/microscale/internal/report cmd/microscale/internal/bench cmd/microscale/internal/flags
cmd/microscale/internal/evaluation: internal/memory internal/limits internal/durable safetensors/checksum gguf tensor quant profile
    tokenizer comm recipe nn hf family checkpoint/llamacpp decoder train calibration convert generation cmd/microscale/internal/host
    cmd/microscale/internal/show cmd/microscale/internal/report cmd/microscale/internal/budget
    cmd/microscale/internal/evaluation/windows cmd/microscale/internal/input cmd/microscale/internal/chat
cmd/microscale/interop:
cmd/microscale: *
`

// external lists the modules beyond the standard library that a package may import. Those of
// the line "*" are for every package.
const external = `
*: golang.org/x/sys
internal/cpu: github.com/klauspost/cpuid/v2
internal/durable: github.com/gofrs/flock
safetensors/checksum: github.com/minio/crc64nvme
comm/mpi: github.com/ebitengine/purego
tokenizer: golang.org/x/text
recipe: github.com/BurntSushi/toml
calibration: gonum.org/v1/gonum
convert: github.com/BurntSushi/toml
cmd/microscale/internal/show: github.com/jedib0t/go-pretty/v6 golang.org/x/term
cmd/microscale/internal/report: github.com/jedib0t/go-pretty/v6 gonum.org/v1/gonum gonum.org/v1/plot
cmd/microscale/internal/flags: github.com/BurntSushi/toml github.com/jedib0t/go-pretty/v6 github.com/spf13/cobra github.com/spf13/pflag
cmd/microscale/internal/ranks: github.com/spf13/cobra
cmd/microscale/internal/push: go.yaml.in/yaml/v3
cmd/microscale/internal/store: github.com/minio/crc64nvme github.com/minio/minio-go/v7 golang.org/x/oauth2
cmd/microscale/internal/blocksize: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/numbers: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/catalog: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/conversion: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/difference: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/identify: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/planning: github.com/jedib0t/go-pretty/v6
cmd/microscale/internal/evaluation: github.com/jedib0t/go-pretty/v6 gonum.org/v1/gonum
cmd/microscale: github.com/jedib0t/go-pretty/v6 github.com/spf13/cobra
`

// coming lists the packages of the order that are not written yet.
const coming = ""

const module = "github.com/microscale-go/microscale"

// root is the top of the module, relative to this package's folder, where go test runs.
var root = filepath.Join("..", "..")

// imports maps each package to the imports of its files, without tests.
type imports map[string][]string

func TestImports(t *testing.T) {
	found := readImports(t)
	for _, p := range check(parseLines(order), parseLines(external), found) {
		t.Error(p)
	}
}

// TestOrder checks that each line of order refers only to packages above it.
func TestOrder(t *testing.T) {
	above := map[string]bool{"*": true}
	for _, l := range parseLines(order) {
		if above[l.name] {
			t.Errorf("%s is listed twice", l.name)
		}
		for _, p := range l.allowed {
			if !above[p] {
				t.Errorf("%s may import %s, which is not above it", l.name, p)
			}
		}
		above[l.name] = true
	}
}

// TestListedPackagesExist checks that every listed package exists.
func TestListedPackagesExist(t *testing.T) {
	found := readImports(t)
	for _, l := range parseLines(order) {
		if _, ok := found[l.name]; !ok && !slices.Contains(strings.Fields(coming), l.name) {
			t.Errorf("the order lists %s, which has no Go files", l.name)
		}
	}
}

// TestCheck plants every fault that TestImports detects.
func TestCheck(t *testing.T) {
	list := parseLines("low:\nhigh: low\ntop: *")
	mods := parseLines("*: example.org/sys\ntop: example.org/cli/v2")
	for _, tc := range []struct {
		name  string
		found imports
		want  string
	}{
		{"fine", imports{"low": {"fmt", "example.org/sys/cpu"}, "high": {module + "/low"}, "top": {module + "/high", "example.org/cli/v2/table"}},
			""},
		{"upward", imports{"low": {module + "/high"}}, "low imports high"},
		{"sideways-module", imports{"high": {"example.org/cli/v2"}}, "high imports example.org/cli/v2"},
		{"name-prefix", imports{"high": {"example.org/system"}}, "high imports example.org/system"},
		{"unlisted", imports{"new": nil}, "new is not listed"},
		{"root", imports{"top": {module}}, "top imports ."},
		{"unlisted-import", imports{"top": {module + "/new"}}, "top imports new"},
		{"cgo", imports{"top": {"C"}}, "top uses cgo"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(check(list, mods, tc.found), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want one with %q", got, tc.want)
			}
		})
	}
}

// TestPurego checks that the tag purego excludes all assembly, on every architecture.
func TestPurego(t *testing.T) {
	walk(t, func(name string, data []byte) {
		if path.Ext(name) == ".s" && !offWithPurego(string(data)) {
			t.Errorf("%s: not excluded by the tag purego: start it with //go:build amd64 && !purego", name)
		}
	})
}

func TestOffWithPurego(t *testing.T) {
	for source, want := range map[string]bool{
		"//go:build !purego\n\nTEXT":                         true,
		"// Generated.\n\n//go:build amd64 && !purego\nTEXT": true,
		"//go:build amd64\n":                                 false,
		"//go:build !purego || arm64\n":                      false,
		"//go:build !arm64\n":                                false,
		"TEXT ·f(SB)\n//go:build ignore)":                    false,
	} {
		if got := offWithPurego(source); got != want {
			t.Errorf("%q: got %v, want %v", source, got, want)
		}
	}
}

// machinePath matches the start of an absolute path that is specific to one machine.
var machinePath = regexp.MustCompile(`(^|[^\w./$}>-])/(work|root|home|tmp|Users|mnt|opt)(/|\b)`)

// TestMachinePaths checks that no file names a path of the machine it was written on.
func TestMachinePaths(t *testing.T) {
	walk(t, func(name string, data []byte) {
		switch path.Ext(name) {
		case ".go", ".s", ".md", ".sh", ".py", ".yml", ".toml", ".txt", ".txtar", ".json", ".codes", "":
		default:
			return
		}
		for i, line := range strings.Split(string(data), "\n") {
			if machinePath.MatchString(line) {
				t.Errorf("%s:%d names a path of one machine: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	})
}

func TestMachinePath(t *testing.T) {
	for line, want := range map[string]bool{
		"cd /" + "work/x":                   true,
		"see \"/" + "tmp\"":                 true,
		"/" + "root/go":                     true,
		"#!/usr/bin/env bash":               false,
		"https://example.org/home/x":        false,
		"framework/work/x and ./tmp/x":      false,
		"\"$dir/tmp/x\" or ${dir}/work":     false,
		"1/workers, tmp, /working, a or /b": false,
	} {
		if got := machinePath.MatchString(line); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

// A line is one package of a list and the text after its colon.
type line struct {
	name    string
	allowed []string
}

func parseLines(text string) []line {
	var lines []line
	for _, s := range strings.Split(strings.TrimSpace(strings.ReplaceAll(text, "\n    ", " ")), "\n") {
		name, rest, _ := strings.Cut(s, ":")
		lines = append(lines, line{name, strings.Fields(rest)})
	}
	return lines
}

// check returns one sentence for every import that the lists do not allow.
func check(order, external []line, found imports) []string {
	allowed := map[string][]string{}
	var above []string
	for _, l := range order {
		allowed[l.name] = l.allowed
		if slices.Contains(l.allowed, "*") {
			allowed[l.name] = slices.Clone(above)
		}
		above = append(above, l.name)
	}
	modules := map[string][]string{}
	for _, l := range external {
		modules[l.name] = l.allowed
	}
	var problems []string
	for _, p := range slices.Sorted(maps.Keys(found)) {
		if _, ok := allowed[p]; !ok {
			problems = append(problems, fmt.Sprintf("%s is not listed in the order: give it its place", p))
		}
		for _, i := range found[p] {
			ours, isOurs := strings.CutPrefix(i+"/", module+"/")
			first, _, _ := strings.Cut(i, "/")
			within := func(m string) bool { return i == m || strings.HasPrefix(i, m+"/") }
			switch {
			case isOurs:
				if name := path.Clean(ours); !slices.Contains(allowed[p], name) {
					problems = append(problems, fmt.Sprintf("%s imports %s, which the order does not allow", p, name))
				}
			case i == "C":
				problems = append(problems, fmt.Sprintf("%s uses cgo", p))
			case !strings.Contains(first, "."): // the standard library
			case !slices.ContainsFunc(modules["*"], within) && !slices.ContainsFunc(modules[p], within):
				problems = append(problems, fmt.Sprintf("%s imports %s, which is not among its modules", p, i))
			}
		}
	}
	return problems
}

// readImports parses the imports of every Go file of the module, whatever its build tags.
// Packages of test files only have no imports.
func readImports(t *testing.T) imports {
	found := imports{}
	walk(t, func(name string, data []byte) {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			return
		}
		p := path.Dir(name)
		found[p] = append(found[p], nil...) // add the key even if all files are tests
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, i := range file.Imports {
			found[p] = append(found[p], strings.Trim(i.Path.Value, `"`))
		}
	})
	if len(found) == 0 {
		t.Fatal("found no packages")
	}
	return found
}

// offWithPurego reports whether a file's build constraint excludes it from every build with
// the tag purego.
func offWithPurego(source string) bool {
	for _, l := range strings.Split(source, "\n") {
		if constraint.IsGoBuild(l) {
			expr, err := constraint.Parse(l)
			if err != nil {
				return false
			}
			for _, arch := range []string{"amd64", "arm64", "other"} {
				if expr.Eval(func(tag string) bool { return tag == "purego" || tag == arch }) {
					return false
				}
			}
			return true
		}
		if l != "" && !strings.HasPrefix(l, "//") {
			return false // build constraints precede the code
		}
	}
	return false
}

// walk visits the files of the module by their slash-separated names. It skips folders that Go
// and git ignore (names starting with a dot, except .ci), and what .ci installs.
func walk(t *testing.T, visit func(name string, data []byte)) {
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if d.IsDir() {
			base := path.Base(name)
			if name == ".ci/bin" || strings.HasSuffix(name, ".microscale-partial") || base != "." && base != ".ci" && strings.HasPrefix(base, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || path.Ext(name) == "" && path.Dir(name) != ".ci" {
			return nil // no extension: binaries, except the scripts of .ci
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		visit(name, data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
