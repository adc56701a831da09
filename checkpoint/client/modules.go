package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// This file has the rules about modules that transformers builds by other names than the files have,
// or without any weights of theirs. It builds every linear module quantized that the ignore list does
// not match, and computes with what memory holds if the files have no codes of it.

// tiedHead: the client builds the output head also where the files have none, because it shares the
// embedding's weight.
func tiedHead(m *checkpoint.Model) (problems []checkpoint.Problem) {
	expected := m.Expected()
	for _, head := range m.UnstoredHeads() {
		if expected(head) {
			problems = append(problems, checkpoint.Problem{Rule: "tied-head", Tensor: head,
				Text: "the client builds it quantized, because it is not on the ignore list, and the files have no codes of it: it fails, or " +
					"computes NaN or noise; convert the checkpoint to the same convention, which adds it to the list"})
		}
	}
	return problems
}

// moved are the model types whose vision and audio modules and projectors the client has below model,
// where the published files have them at the top (conversion_mapping.py of transformers 5.24).
var moved = []string{
	"aria", "audioflamingo3", "aya_vision", "fuyu", "gemma3", "glmasr", "got_ocr2", "granite_speech", "granite_speech_plus", "internvl",
	"llava", "llava_next", "llava_next_video", "llava_onevision", "mistral3", "mllama", "musicflamingo", "paddleocr_vl", "paligemma",
	"pp_chart2table", "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_audio", "qwen2_vl", "vibevoice_asr", "video_llava", "vipllava", "voxtral",
	"voxtral_realtime",
}

// movedName returns the client's name for a module of a moved model.
func movedName(module string) string {
	switch {
	case strings.HasSuffix(module, ".lm_head"):
		return "lm_head"
	case module == "lm_head", strings.HasPrefix(module, "model."):
		return module
	}
	return "model." + module
}

// movedModules: the ignore list has names of the files where the client looks for its own.
func movedModules(m *checkpoint.Model) (problems []checkpoint.Problem) {
	if whole, _ := m.Source.ModelType(); m.Convention.Name != "compressed-tensors" || !slices.Contains(moved, whole) {
		return nil
	}
	expected := m.Expected()
	for _, w := range m.Weights {
		module, ok := strings.CutSuffix(w.Name, ".weight")
		if !ok || w.Quantized() || len(w.Shape) != 2 || strings.Contains(module, "embed") { // embeddings are no linear modules
			continue
		}
		if name := movedName(module); expected(name) {
			problems = append(problems, checkpoint.Problem{Rule: "moved-names", Tensor: w.Name,
				Text: "the client calls it " + name + " and builds it quantized, because no entry of the ignore list matches that name; convert " +
					"the checkpoint to the same convention, which writes patterns"})
		}
	}
	return problems
}

// decodedToBF16: the client decodes codes with scales of one byte to BF16, and multiplies them by
// activations in the dtype of the model (compressors/mxfp8, mxfp4 and nvfp4 of compressed-tensors 0.20).
func decodedToBF16(m *checkpoint.Model) []checkpoint.Problem {
	formats, dtype := m.Formats(), m.TorchDtype()
	i := slices.IndexFunc(formats, quant.Format.ByteScales)
	if m.Convention.Name != "compressed-tensors" || i < 0 || dtype == "" || dtype == "bfloat16" {
		return nil
	}
	return []checkpoint.Problem{{Rule: "model-dtype", Text: fmt.Sprintf("the client decodes %s to bfloat16, and fails because the model is "+
		"in %s: quantize again, with the other weights in bfloat16", formats[i], dtype)}}
}
