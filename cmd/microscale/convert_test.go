package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// TestConvert converts from one convention to another and back, as text and JSON, and
// compares the files.
func TestConvert(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	directory(t, at("src"), twoWeights()...)
	done(t, "quantize", at("src"), at("first"), "--format", "nvfp4", "--scheme", "nvfp4", "--calibration", "constant")
	text := done(t, "convert", at("first"), at("second"), "--convention", "modelopt")
	if want := "1 weight of nvfp4 relabeled from compressed-tensors to modelopt NVFP4"; !strings.Contains(text, want) {
		t.Errorf("convert prints\n%s\nwithout %q", text, want)
	}
	var doc conversion.Document
	if status := document(t, &doc, "convert", at("second"), at("third"), "--convention", "compressed-tensors"); status != exitDone {
		t.Fatalf("exit status %d", status)
	}
	if doc.Format != "nvfp4" || doc.Convention != "compressed-tensors" || doc.Scheme != "NVFP4" || doc.Quantized != 1 || doc.Bytes == 0 {
		t.Errorf("%+v", doc)
	}
	first, err := os.ReadFile(at("first/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	third, err := os.ReadFile(at("third/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(third) {
		t.Error("config.json is not what it was")
	}
	if a, b := recordedTensors(t, at("first/model.safetensors")), recordedTensors(t, at("third/model.safetensors")); a != b {
		t.Errorf("the tensors are\n%s\nand were\n%s", b, a)
	}
	var inspected conversion.InspectDocument
	if document(t, &inspected, "inspect", at("second"), "--client", "vllm,trtllm"); *inspected.Convention != "modelopt" ||
		inspected.Scheme != "NVFP4" || len(inspected.Problems) != 0 {
		t.Errorf("%+v", inspected)
	}
	done(t, "verify", at("src"), at("second"), "--client", "trtllm")
	if err := os.WriteFile(at("amax.toml"), []byte("[input]\n\"l.1.proj\" = 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, tc := range []struct{ args, want string }{
		{"verify src second --client vllm --client transformers", "second does not match src: 1 problem, the first: transformers: it does " +
			"not read modelopt NVFP4: it reads compressed-tensors NVFP4A16, compressed-tensors NVFP4, to which it can be converted"},
		{"convert first out --convention quark", "convention quark does not support nvfp4: use one of mxfp4, mxfp6-e3m2, mxfp6-e2m3"},
		{"convert src out --convention mlx", "not quantized: name a checkpoint of convention"},
		{"quantize src out --format nvfp4 --scheme NVFP4", "scheme NVFP4 of convention compressed-tensors stores scales of activations: give " +
			"a calibration, from a file or constant; or choose scheme NVFP4A16"},
		{"quantize src out --format mxfp8 --calibration constant", "convention compressed-tensors stores no scales of activations for mxfp8: " +
			"leave the calibration out"},
		{"quantize src out --format nvfp4 --calibration amax.toml", "calibration: the amax of the inputs of l.0.proj is missing (1 of 1 " +
			"modules)"},
		{"quantize src out --format nvfp4 --kv-cache", "calibration: it has scales of the KV cache, but the checkpoint has no k_proj and v_proj"},
	} {
		status, _, stderr := execute("", strings.Fields(tc.args)...)
		if status != exitFailed || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit status %d, %q, want %q", tc.args, status, stderr, tc.want)
		}
		if _, err := os.Stat("out"); err == nil {
			t.Errorf("%s: it left something behind", tc.args)
		}
	}
	for args, want := range map[string]string{
		"convert first out":                             "--for, --convention or --cast is missing: name a client (vllm, ",
		"quantize src out --format nvfp4 --scheme int4": `--scheme: unknown scheme "int4": use one of MXFP8`,
		"inspect src --client tensorflow":               `--client: unknown client "tensorflow": use one of vllm`,
	} {
		if status, _, stderr := execute("", strings.Fields(args)...); status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, %q, want %q", args, status, stderr, want)
		}
	}
}

// recordedTensors returns the tensors of a file with the checksums of its record, and its
// other metadata.
func recordedTensors(t *testing.T, path string) string {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	record, ok, err := checksum.RecordOf(f)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	metadata := maps.Clone(f.Metadata())
	delete(metadata, checksum.RecordKey)
	return fmt.Sprintf("%v\n%x\n%v", f.Tensors(), record.Tensors, metadata)
}
