package microscale_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/microscale-go/microscale"

// outsideMain is the program of TestOutsideModule. The README's example replaces EXAMPLE, and imports
// of all public packages IMPORTS.
const outsideMain = `package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
IMPORTS
)

EXAMPLE

func main() {
	path := filepath.Join(os.Args[1], "model.safetensors")
	layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: "fc.weight", Dtype: safetensors.F32, Shape: []int64{2, 64}}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		log.Fatal(err)
	}
	var data []byte
	for i := range 128 {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i%13)-6))
	}
	if err := w.WriteTensorAt("fc.weight", data, 0); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := report(path, "fc.weight"); err != nil {
		log.Fatal(err)
	}
	if err := report(path, "fc.bias"); !errors.Is(err, fs.ErrNotExist) {
		log.Fatalf("missing tensor: got %v", err)
	}
	if _, err := safetensors.Create(path, layout); !errors.Is(err, fs.ErrExist) {
		log.Fatalf("existing file: got %v", err)
	}
	if err := quantize(path, filepath.Join(os.Args[1], "quantized.safetensors")); err != nil {
		log.Fatal(err)
	}
	if err := tasks(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// quantize quantizes a checkpoint twice: the second time the destination exists.
func quantize(src, dst string) error {
	source, err := convert.Open(src)
	if err != nil {
		return err
	}
	defer source.Close()
	mxfp8 := convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Convention: "plain"}
	plan, err := convert.PlanQuantize(context.Background(), source, mxfp8)
	if err != nil {
		return err
	}
	var last verify.Progress
	o := convert.RunOptions{Progress: func(p verify.Progress) { last = p }}
	if _, err := plan.Run(context.Background(), dst, o); err != nil {
		return err
	}
	if _, err := plan.Run(context.Background(), dst, o); !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("existing destination: got %v", err)
	}
	written, err := convert.Open(dst)
	if err != nil {
		return err
	}
	defer written.Close()
	report, err := verify.Compare(context.Background(), source, written, verify.Options{})
	if err != nil {
		return err
	}
	fmt.Printf("%d %s weight, %s %d of %d bytes, verified: %v\n",
		plan.Count(convert.Quantize), plan.Convention, last.Stage, last.Done, last.Total, report.OK())
	mxfp4 := convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}}
	if _, err := convert.PlanQuantize(context.Background(), written, mxfp4); !errors.Is(err, convert.ErrQuantized) {
		return fmt.Errorf("quantized source: got %v", err)
	}
	return nil
}
`

// TestOutsideModule compiles and runs a program in another module that imports every public package
// has the Go example of the README, and does in testdata/outside what the documents are about. The module cache must have the dependencies
// of this module;
// the test does not use the network.
func TestOutsideModule(t *testing.T) {
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	packages := publicPackages(t, root)
	var imports strings.Builder
	for _, p := range packages {
		if used := []string{"convert", "measure", "quant", "safetensors", "tensor", "verify"}; !slices.Contains(used, p) {
			imports.WriteString("\t_ \"" + modulePath + "/" + p + "\"\n")
		}
	}
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", strings.NewReplacer("IMPORTS", strings.TrimRight(imports.String(), "\n"), "EXAMPLE",
		readmeExample(t)).Replace(outsideMain))
	write("tasks.go", outsideTasks(t))
	goMod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	goSum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write("go.mod", strings.Replace(string(goMod), "module "+modulePath, "module example.org/outside", 1)+
		"\nrequire "+modulePath+" v0.0.0\n\nreplace "+modulePath+" => "+filepath.ToSlash(root)+"\n")
	write("go.sum", string(goSum))

	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(gotool, "list", "-deps", "."); err != nil && strings.Contains(out, "module lookup disabled by GOPROXY=off") {
		t.Skipf("go cannot resolve the dependencies without the network: %s", out)
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := filepath.Join(dir, "outside.exe")
	if out, err := run(gotool, "build", "-o", program, "."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := run(program, dir)
	const want = `fc.weight: 132 bytes, SQNR +Inf dB
1 plain weight, converting 512 of 512 bytes, verified: true
fc.weight: mxfp8, 2×64, the last value is 4
vLLM reads it: false
two x F32 [2 2] 16
y 32×32, dx 32×64
gathered [[0] [1]]
trained: from 5.6 to 2.7 nats per byte
generated 8 tokens, true true
the loss is below that of uniform bytes: true
b200 3 products, 4 sections of costs
`
	if err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// outsideTasks returns testdata/outside/tasks.go. Each of its functions has less than 30 lines.
func outsideTasks(t *testing.T) string {
	t.Helper()
	path := filepath.Join("testdata", "outside", "tasks.go")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, data, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if lines := files.Position(d.End()).Line - files.Position(d.Pos()).Line + 1; lines >= 30 {
			t.Errorf("%s: %d lines, want less than 30", files.Position(d.Pos()), lines)
		}
	}
	return string(data)
}

// publicPackages returns the importable packages below root, as paths with slashes. It looks at every
// Go file, so that go test does not reuse a result from before a change.
func publicPackages(t *testing.T, root string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (name == "testdata" || name == "cmd" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		public := file.Name.Name != "main" && rel != "." && !strings.Contains("/"+rel, "/internal/")
		if public && !slices.Contains(list, rel) {
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("got public packages %q, want more", list)
	}
	return list
}

// readmeExample returns the only Go block of the README.
func readmeExample(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")
	if len(blocks) != 2 {
		t.Fatalf("got %d Go blocks in the README, want 1", len(blocks)-1)
	}
	block, _, _ := strings.Cut(blocks[1], "```")
	return block
}
