package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// TestFor checks that quantize --for stores what verify --client accepts, and the
// errors for what a client does not read.
func TestFor(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := t.TempDir()
	for _, tc := range []struct{ client, format, dst, want string }{
		{"vllm", "nvfp4", "vllm", "(te, compressed-tensors)"},
		{"sglang", "mxfp8", "sglang", "(te, modelopt)"},
		{"trtllm", "nvfp4", "trtllm", "(te, modelopt)"},
		{"llama.cpp", "mxfp4", "model.gguf", "gguf)"},
		{"mlx", "mxfp4", "mlx", "mlx)"},
		{"mlx", "nvfp4", "mlx-nvfp4", "(mlx, mlx)"},
	} {
		dst := filepath.Join(dir, tc.dst)
		status, stdout, stderr := execute("", "quantize", "sample:", dst, "--format", tc.format, "--for", tc.client)
		if status != exitDone || !strings.Contains(stdout, tc.want) {
			t.Errorf("%s: exit status %d, got %s%s, want %s", tc.client, status, stdout, stderr, tc.want)
			continue
		}
		client := strings.ReplaceAll(tc.client, ".", "")
		if status, stdout, stderr := execute("", "verify", "sample:", dst, "--client", client); status != exitDone {
			t.Errorf("verify --client %s: exit status %d: %s%s", client, status, stdout, stderr)
		}
	}
	for _, tc := range []struct{ arguments, want string }{
		{"--format mxint8 --for vllm", "vllm does not read mxint8: use one of mxfp8, "},
		{"--format mxfp4 --for llama.cpp", "microscale: --for llama.cpp writes one file: use a DST that ends in .gguf"},
		{"--format mxfp4 --for ollama", "microscale: --for ollama writes one file: use a DST that ends in .gguf"},
		{"--format mxfp4 --convention gguf", "microscale: convention gguf writes one file: use a DST that ends in .gguf"},
		{"--format mxfp4 --for vllm --convention plain", "exclude each other"},
		{"--format nvfp4 --for trtllm --scheme NVFP4A16", "does not read scheme NVFP4A16"},
		{"--format nvfp4 --convention vllm", "vllm is a client, not a convention: use --for vllm"},
		{"--format nvfp4 --for lamma", `unknown client "lamma": use one of vllm, `},
		{"--format nvfp4 --for vlm", `unknown client "vlm": did you mean vllm?`},
		{"--format fp8", "did you mean fp8-tensor or fp8-row or fp8-vec128 or fp8-block128?"},
	} {
		status, _, stderr := execute("", append([]string{"quantize", "sample:", filepath.Join(dir, "none")}, strings.Fields(tc.arguments)...)...)
		if status != exitUsage || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit status %d, got %s, want %s", tc.arguments, status, stderr, tc.want)
		}
	}
}

// TestConvertFor checks that convert --for stores what verify --client accepts, and the errors for what a client does
// not read.
func TestConvertFor(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	for _, tc := range []struct{ format, client, dst, want string }{
		{"mxfp8", "sglang", "sglang", "modelopt"}, // which does not read it in compressed-tensors
		{"mxfp8", "mlx", "mlx", "mlx"},
		{"nvfp4", "trtllm", "trtllm", "modelopt"},
		{"mxfp4", "llama.cpp", "model.gguf", "gguf"},
		{"mxfp4", "transformers", "transformers", "compressed-tensors"},
	} {
		dst := filepath.Join(dir, tc.dst)
		if status, _, stderr := execute("", "quantize", "sample:", source, "--format", tc.format, "--convention", "plain",
			"--force"); status != exitDone {
			t.Fatal(stderr)
		}
		status, stdout, stderr := execute("", "convert", source, dst, "--for", tc.client)
		if status != exitDone || !strings.Contains(stdout, tc.want) {
			t.Errorf("%s: exit status %d, got %s%s, want %s", tc.client, status, stdout, stderr, tc.want)
			continue
		}
		client := strings.ReplaceAll(tc.client, ".", "")
		if status, stdout, stderr := execute("", "verify", source, dst, "--client", client); status != exitDone {
			t.Errorf("verify --client %s: exit status %d: %s%s", client, status, stdout, stderr)
		}
	}
	for _, tc := range []struct {
		status          int
		arguments, want string
	}{
		{exitUsage, "none.gguf --for vllm", "--for vllm does not write .gguf files"},
		{exitUsage, "none --for llama.cpp", "--for llama.cpp writes one file"},
		{exitUsage, "none --for vllm --convention mlx", "exclude each other"},
		{exitUsage, "none", "--for, --convention or --cast is missing"},
		{exitFailed, "none --for trtllm", "trtllm does not read mxfp4: use one of "},
		{exitFailed, "none --for transformers --scheme mxfp8", "no scheme"},
	} {
		words := strings.Fields(tc.arguments)
		words[0] = filepath.Join(dir, words[0])
		status, _, stderr := execute("", append([]string{"convert", source}, words...)...)
		if status != tc.status || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit status %d, got %s, want %s", tc.arguments, status, stderr, tc.want)
		}
	}
}
