package interop

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/train"
)

const (
	llamaLibraries = "@node-llama-cpp/linux-x64@3.22.1" // llama.cpp 0.5.0, of 1 October 2026
	lossWindow     = "256"
)

// npmPackage returns a directory with the contents of an npm package, without its dependencies.
// It skips the test if the package cannot be installed.
func npmPackage(t testing.TB, requirement string) string {
	t.Helper()
	name := strings.NewReplacer("/", "-").Replace(requirement)
	return filepath.Join(environment(t, name, func(dir string) (string, error) {
		out, err := command(installLimit(), "npm", "pack", "--silent", "--pack-destination", dir, requirement)
		if err != nil {
			return "npm pack: " + lastLine(out, err), err
		}
		archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
		if err != nil || len(archives) != 1 {
			return "npm pack left no archive", os.ErrNotExist
		}
		if out, err := command(installLimit(), "tar", "-xzf", archives[0], "-C", dir); err != nil {
			return "tar: " + lastLine(out, err), err
		}
		return "", os.Remove(archives[0])
	}), "package")
}

// lossText writes a text for byte-level models and returns its path.
func lossText(t *testing.T) string {
	t.Helper()
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		t.Fatal(err)
	}
	_, validation := corpus.Text()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, validation[:2048], 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// A loss is the cross-entropy that a client computes for a file, in nats per byte, or its
// error.
type loss struct {
	Nats     float64 `json:"nats"`
	Rejected string  `json:"rejected"`
}

// references returns the losses of transformers for directories of decoded values.
func references(t *testing.T, interpreter, text string, directories []string) map[string]float64 {
	t.Helper()
	result := filepath.Join(t.TempDir(), "reference.json")
	script(t, interpreter, "nats_architectures.py", append([]string{text, lossWindow, result}, directories...)...)
	losses := map[string]float64{}
	readJSON(t, result, &losses)
	return losses
}

// values decodes a checkpoint to F32.
func values(t *testing.T, dir, dst string) {
	t.Helper()
	converted(t, dir, dst, func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanDequantize(t.Context(), m, safetensors.F32)
	})
}

// llamaArchitectures are the architectures that convert writes as GGUF, with the names of
// llama.cpp.
var llamaArchitectures = map[string]string{
	"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2_moe": "qwen2moe",
	"qwen3_moe": "qwen3moe",
	"smollm3":   "smollm3", "granite": "granite", "olmo2": "olmo2", "glm4": "glm4", "phi3": "phi3", "gemma2": "gemma2",
	"gemma3_text": "gemma3",
	"gpt_oss":     "gpt-oss", "olmo3": "olmo2", "deepseek_v3": "deepseek2", "phi3_long": "phi3", "phi3_short": "phi3",
}

// TestTorchArchitecturesLlamaCPP: llama.cpp runs each architecture of a GGUF file with the loss
// of transformers. Other architectures, and global scales that a graph ignores, are errors of
// quantize.
func TestTorchArchitecturesLlamaCPP(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(t, "%s is not started on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	interpreter := withTorch(t, "llama.cpp does not run the architectures", architecturesWith...)
	numpy := python(t, sharedTorch[1])
	libraries := filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")
	sources, root, text := made(t, interpreter), t.TempDir(), lossText(t)

	type file struct{ name, values string }
	files := map[string]file{}
	var paths, directories []string
	for name, architecture := range llamaArchitectures {
		directories = append(directories, filepath.Join(sources, name), filepath.Join(sources, name+"-reversed"))
		for _, l := range []layoutOf{{"gguf", quant.BF16, "", ""}, {"gguf", quant.Q8_0, "", ""}, {"gguf", quant.MXFP4, "", ""},
			{"gguf", quant.NVFP4, "", ""}, {"gguf", quant.NVFP4, "", "ggml"}} {
			id := strings.Join([]string{name, l.format.Name, l.profile}, " ")
			path, dir := filepath.Join(root, id+".gguf"), filepath.Join(sources, name)
			err := l.write(t, dir, path)
			if l.format.Global && l.profile == "" && family.UnscaledGraph(architecture) {
				if err == nil || !strings.Contains(err.Error(), "llama.cpp ignores global scales") {
					t.Errorf("%s: error %v", id, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", id, err)
				continue
			}
			if l.format.Scaled() {
				codes := filepath.Join(root, id)
				if err := (layoutOf{"plain", l.format, "", l.profile}).write(t, dir, codes); err != nil {
					t.Fatal(err)
				}
				dir = codes + "-values"
				values(t, codes, dir)
				directories = append(directories, dir)
			}
			files[path] = file{name, dir}
			paths = append(paths, path)
			if l.profile != "" {
				halved := filepath.Join(root, id+" halved.gguf")
				halveScales(t, path, halved)
				paths = append(paths, halved)
			}
		}
	}
	for _, name := range decodedAll {
		if llamaArchitectures[name] != "" {
			continue
		}
		if err := (layoutOf{"gguf", quant.MXFP4, "", ""}).write(t, filepath.Join(sources, name), filepath.Join(root, name+".gguf")); err == nil ||
			!strings.Contains(err.Error(), "is not supported in GGUF") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	want := references(t, interpreter, text, directories)
	result := filepath.Join(t.TempDir(), "result.json")
	script(t, numpy, "run_libllama.py", append([]string{libraries, text, lossWindow, result}, paths...)...)
	got := map[string]loss{}
	readJSON(t, result, &got)
	for path, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".gguf"), func(t *testing.T) {
			source := filepath.Join(sources, f.name)
			misplaced := math.Abs(want[source+"-reversed"] - want[source])
			ours, directory := ownLoss(t, path, text), ownLoss(t, f.values, text)
			if !(math.Abs(ours-directory) < 1e-5) || !(math.Abs(directory-want[f.values]) < 1e-4) {
				t.Errorf("our loss is %.6f, of the directory %.6f, and transformers' is %.6f", ours, directory, want[f.values])
			}
			d := math.Abs(got[path].Nats - want[f.values])
			t.Logf("llama.cpp %.5f %s, transformers %.5f nats per byte; layers in another order make a difference of %.5f", got[path].Nats,
				got[path].Rejected, want[f.values], misplaced)
			// llama.cpp quantizes activations to 8 bits, so it may choose other experts. The
			// tolerance is also a small part of the effect of a misplaced tensor.
			if got[path].Rejected != "" || !(d < min(0.005, misplaced/10)) || misplaced < 0.02 {
				t.Errorf("%g nats apart; layers in another order %g; %s", d, misplaced, got[path].Rejected)
			}
			halved, ok := got[strings.TrimSuffix(path, ".gguf")+" halved.gguf"]
			if ok {
				ignored := halved.Rejected == "" && halved.Nats == got[path].Nats
				if listed := family.UnscaledGraph(llamaArchitectures[f.name]); ignored != listed {
					t.Errorf("that it ignores global scales of feed-forward layers is %v, and %v in package checkpoint", ignored, listed)
				}
			}
		})
	}
}

// ownLoss returns the loss that package decoder computes, as references does.
func ownLoss(t *testing.T, path, text string) float64 {
	t.Helper()
	window, err := strconv.Atoi(lossWindow)
	if err != nil {
		t.Fatal(err)
	}
	m, data := loadDecoder(t, path, true), read(t, filepath.Dir(text), filepath.Base(text))
	sum, count := 0.0, 0
	for ; len(data) >= window; data = data[window:] {
		tokens := make([]int32, window)
		for i, b := range data[:window] {
			tokens[i] = int32(b)
		}
		logits, err := m.Logits(t.Context(), tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, next := range tokens[1:] {
			total := 0.0
			for _, v := range logits.Row(i) {
				total += math.Exp(float64(v))
			}
			sum, count = sum+math.Log(total)-float64(logits.Row(i)[next]), count+1
		}
	}
	return sum / float64(count)
}

// halveScales copies a GGUF file and replaces global scales of 1 in feed-forward layers by 0.5.
func halveScales(t *testing.T, path, dst string) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var end int64
	for _, x := range f.Tensors {
		end = max(end, x.End)
	}
	start := int64(len(raw)) - end
	for start%32 != 0 { // padding after the last tensor
		start--
	}
	count := 0
	for _, x := range f.Tensors {
		if !strings.Contains(x.Name, ".ffn_") || !strings.HasSuffix(x.Name, ".scale") {
			continue
		}
		scales := make([]float32, x.Bytes()/4)
		if err := tensor.FromBytes(scales, raw[start+x.Begin:start+x.End], format.F32); err != nil {
			t.Fatal(err)
		}
		for i, s := range scales {
			if s != 1 {
				t.Fatalf("%s: scale %g of %s", path, s, x.Name)
			}
			scales[i] = 0.5
		}
		if err := tensor.ToBytes(raw[start+x.Begin:start+x.End], scales, format.F32); err != nil {
			t.Fatal(err)
		}
		count++
	}
	if err := os.WriteFile(dst, raw, 0o666); err != nil || count == 0 {
		t.Fatalf("%s: %d scales (%v)", path, count, err)
	}
}
