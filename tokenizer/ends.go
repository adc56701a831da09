package tokenizer

import (
	"slices"
	"strings"
)

// endTokens are the texts of tokens that end an answer. GGUF files name at most one end of a text and one of
// a message, so llama.cpp goes by this list, too (src/llama-vocab.cpp).
var endTokens = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>",
	"<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
	"<｜end▁of▁sentence｜>", "[e~[", "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
	"<REPO>", "<reponame>", "<|file_sep|>",
}

// guessedEnds are further ones, of models in other files that declare no end. llama.cpp does not have them.
var guessedEnds = []string{
	"<|end_of_turn|>",             // OpenChat
	"<|END_OF_TURN_TOKEN|>",       // Command, Aya
	"<|EOT|>",                     // DeepSeek Coder
	"<|role_end|>",                // Ling
	"<|user|>", "<|observation|>", // GLM, Phi: the next message
}

// partOfMessage returns tokens of the list that other tokens of the vocabulary show to be parts of a message or of text.
func partOfMessage(has func(token string) bool) string {
	switch {
	case has("<|end|>") && (has("<|return|>") && has("<|call|>") || has("<|flush|>") && (has("<|call|>") || has("<|calls|>"))):
		return "<|end|>" // gpt-oss, Solar: it ends a channel
	case has("<|tool_response>"), has("<|plamo:eos|>"):
		return "</s>" // Gemma 4, PLaMo: it is text
	}
	return ""
}

// endsAmong returns those of names that are ends of answers in a vocabulary.
func endsAmong(names []string, id func(token string) (uint32, bool)) (ids []uint32) {
	part := partOfMessage(func(token string) bool { _, ok := id(token); return ok })
	for _, token := range names {
		if id, ok := id(token); ok && token != part {
			ids = append(ids, id)
		}
	}
	return ids
}

// endIDs returns the tokens that end an answer: those that the file names, and those of endTokens. One that
// the file types as text is among them only if its chat template writes it. llama.cpp takes all of them,
// also HTML's </s> in the vocabulary of Qwen.
func (v *vocabulary) endIDs() (ids []uint32) {
	byText := map[string]uint32{}
	for id, token := range v.tokens {
		byText[token] = uint32(id)
	}
	for _, id := range endsAmong(endTokens, func(token string) (uint32, bool) { id, ok := byText[token]; return id, ok }) {
		if v.kind(id) != normalType || strings.Contains(v.chatTemplate, v.tokens[id]) {
			ids = append(ids, id)
		}
	}
	for _, name := range []string{eosName, eotName, eomName} {
		if id, ok := v.id(name); ok && (v.ids[name] != nil || v.model == sentencePieceModel) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// GuessEnds returns the special tokens that end an answer by their names, for models that declare no end.
func (t *Tokenizer) GuessEnds() []uint32 {
	ids := endsAmong(slices.Concat(endTokens, guessedEnds), t.ID)
	return slices.DeleteFunc(ids, func(id uint32) bool { return !t.IsSpecial(id) })
}
