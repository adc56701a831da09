package main

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestQuantizeSequential: with any number of threads the same tensors, which are not those of gptq alone, and nothing is left.
func TestQuantizeSequential(t *testing.T) {
	at, model, text := modelAndText(t)
	run := func(name string, flags ...string) string {
		t.Helper()
		done(t, append([]string{"quantize", model, at(name), "--format", "nvfp4", "--text", text}, flags...)...)
		return recordedTensors(t, filepath.Join(at(name), "model.safetensors"))
	}
	one := run("one", "--sequential", "--threads", "1")
	if three := run("three", "--sequential", "--threads", "3"); three != one {
		t.Error("three threads give other tensors")
	}
	if run("plain") == one {
		t.Error("the tensors are those of gptq alone")
	}
	if left, _ := filepath.Glob(at("one") + ".*"); left != nil {
		t.Errorf("%v is left", left)
	}
	for _, flags := range [][]string{{"--method", "search", "--text", text}, {"--threads", "1"},
		{"--text", text, "--budget", "5", "--formats", "nvfp4,mxfp8"}} {
		args := append([]string{"quantize", model, at("wrong"), "--sequential"}, flags...)
		if flags[len(flags)-2] != "--formats" {
			args = append(args, "--format", "nvfp4")
		}
		if status, _, stderr := execute("", args...); status != exitUsage || !strings.Contains(stderr, "--sequential") {
			t.Errorf("%v: status %d, %s", flags, status, stderr)
		}
	}
}

// TestFitActivations: codes follow from quantized inputs, the same with any number of threads, and scales of activations are powers of two.
func TestFitActivations(t *testing.T) {
	at, model, text := modelAndText(t)
	run := func(name string, flags ...string) string {
		t.Helper()
		done(t, append([]string{"quantize", model, at(name), "--format", "nvfp4", "--text", text}, flags...)...)
		return recordedTensors(t, filepath.Join(at(name), "model.safetensors"))
	}
	if one := run("one", "--scheme", "NVFP4", "--fit-activations", "--threads", "1"); one != run("three", "--scheme", "NVFP4",
		"--fit-activations", "--threads", "3") {
		t.Error("three threads give other tensors")
	}
	run("weights")
	for _, flags := range [][]string{{"--text", text}, {"--text", text, "--method", "search", "--scheme", "NVFP4"}, {"--threads", "1"}} {
		args := append([]string{"quantize", model, at("wrong"), "--format", "nvfp4", "--fit-activations"}, flags...)
		if status, _, stderr := execute("", args...); status != exitUsage || !strings.Contains(stderr, "--fit-activations") {
			t.Errorf("%v: status %d, %s", flags, status, stderr)
		}
	}
	codes := func(name string) (data []byte) {
		f, err := safetensors.Open(filepath.Join(at(name), "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		inputs := 0
		for _, one := range f.Tensors() {
			if strings.HasSuffix(one.Name, ".weight_packed") {
				data = append(data, content(t, f.Name())[f.DataStart()+one.Begin:][:one.End-one.Begin]...)
			}
			if !strings.HasSuffix(one.Name, ".input_global_scale") {
				continue
			}
			inputs++
			scale, err := f.Floats(one.Name)
			if err != nil {
				t.Fatal(err)
			}
			if fraction, _ := math.Frexp(float64(scale[0])); fraction != 0.5 {
				t.Errorf("%s: %s is %g, want a power of two", name, one.Name, scale[0])
			}
		}
		if want := name == "one"; (inputs > 0) != want {
			t.Errorf("%s: %d scales of activations", name, inputs)
		}
		return data
	}
	if low, plain := codes("one"), codes("weights"); len(low) == 0 || len(low) != len(plain) || bytes.Equal(low, plain) {
		t.Errorf("%d bytes of codes, want others than the %d of weights alone", len(low), len(plain))
	}
}
