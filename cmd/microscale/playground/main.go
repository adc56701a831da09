//go:build !js

// Playground is a page that explains blocks and reads checkpoints in a browser, without a server: package
// cmd/microscale/internal/playground as WebAssembly, which this program compiles, in one HTML file with its scripts.
//
// To write DIR/index.html:
//
//	go run ./cmd/microscale/playground DIR
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
)

//go:embed page
var parts embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments: name the directory for index.html", len(args))
	}
	page, err := build(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o777); err != nil {
		return err
	}
	path := filepath.Join(args[0], "index.html")
	if err := os.WriteFile(path, page, 0o666); err != nil {
		return err
	}
	fmt.Printf("%s: %.2f MB; open it in a browser\n", path, float64(len(page))/1e6)
	return nil
}

// build compiles the program for browsers, and returns the page.
func build(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "playground-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "playground.wasm")
	compile := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", path,
		"github.com/microscale-go/microscale/cmd/microscale/playground")
	compile.Env, compile.Stderr = append(os.Environ(), "GOOS=js", "GOARCH=wasm"), os.Stderr
	if err := compile.Run(); err != nil {
		return nil, fmt.Errorf("go build for js/wasm: %w", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	runtime, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return nil, err
	}
	return assemble(program, string(runtime))
}

// assemble returns the page of a program and of the script that Go has to run it.
func assemble(program []byte, runtime string) ([]byte, error) {
	packed := &bytes.Buffer{}
	z, err := gzip.NewWriterLevel(packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(program); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	t, err := template.ParseFS(parts, "page/*")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = t.ExecuteTemplate(&page, "index.html", map[string]string{
		"Mark": report.Generator + ` playground">`, "Style": report.Style, "Runtime": runtime,
		"Program": base64.StdEncoding.EncodeToString(packed.Bytes()),
	})
	return page.Bytes(), err
}
