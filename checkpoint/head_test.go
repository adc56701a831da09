package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestDifferentHead: a stored head is compared with the embedding to which the configuration ties it.
func TestDifferentHead(t *testing.T) {
	const rows, cols = 700, 96
	values := pattern(2*rows*cols, 3)
	other := slices.Clone(values)
	other[2*rows*cols-2] ^= 1
	const tied = `{"model_type": "llama", "tie_word_embeddings": true}`
	for name, tc := range map[string]struct {
		config, prefix, head string
		values               []byte
		shape                []int64
		differs              bool
	}{
		"equal":         {tied, "", "lm_head.weight", values, []int64{rows, cols}, false},
		"last value":    {tied, "", "lm_head.weight", other, []int64{rows, cols}, true},
		"shape":         {tied, "", "lm_head.weight", values, []int64{cols, rows}, true},
		"untied":        {strings.Replace(tied, "true", "false", 1), "", "lm_head.weight", other, []int64{rows, cols}, false},
		"other family":  {`{"model_type": "made", "tie_word_embeddings": true}`, "", "lm_head.weight", other, []int64{rows, cols}, true},
		"of the class":  {`{"model_type": "gemma2"}`, "", "lm_head.weight", other, []int64{rows, cols}, true},
		"no such class": {`{"model_type": "made"}`, "", "lm_head.weight", other, []int64{rows, cols}, false},
		"wrapped": {`{"text_config": {"model_type": "made", "tie_word_embeddings": true}}`, "language_model.",
			"language_model.lm_head.weight", other, []int64{rows, cols}, true},
	} {
		m := readRaw(t, tc.config, nil, rawTensor{tc.prefix + "model.embed_tokens.weight", safetensors.BF16, []int64{rows, cols}, values},
			rawTensor{tc.head, safetensors.BF16, tc.shape, tc.values})
		note, err := m.HeadNote(t.Context())
		if err != nil || (note != "") != tc.differs || tc.differs && !strings.HasPrefix(note, tc.head+" differs from the embedding") {
			t.Errorf("%s: %v: note %q", name, err, note)
		}
	}
}
