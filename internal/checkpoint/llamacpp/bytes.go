package llamacpp

import "fmt"

// byteVocabulary is what config.json says, under microscale.vocabulary, of a model whose tokens are the 256
// bytes, in their order.
const byteVocabulary = "bytes"

// byT5Class is the tokenizer of bytes of transformers, which has special tokens
// before them.
const byT5Class = "ByT5Tokenizer"

var byT5Specials = []string{"<pad>", "</s>", "<unk>"}

// bytes makes a vocabulary of bytes after some special tokens: BPE with nothing to
// merge, so that every byte of a text is a token. (A vocabulary of the kind llama
// would write a space as three bytes.)
func (v *vocabulary) bytes(specials []string, size int) error {
	if size < len(specials)+256 {
		return fmt.Errorf("a vocabulary of bytes has %d tokens, and vocab_size is %d: fetch config.json again", len(specials)+256, size)
	}
	v.model, v.pre, v.merges = bytePairs, "smollm", []string{} // of the ways to split text, one that keeps all spaces
	for _, s := range specials {
		v.tokens, v.types = append(v.tokens, s), append(v.types, controlToken)
	}
	for b := range 256 {
		v.tokens, v.types = append(v.tokens, string(byteRune(byte(b)))), append(v.types, normalToken)
	}
	no := false
	v.addBOS, v.addEOS = &no, &no
	if len(specials) == 0 {
		v.bos, v.eos = 0, 0 // NUL, which no text has; llama.cpp would take byte 11
	}
	return nil
}

// byteRune returns the character that stands for a byte in the tokens of BPE on
// bytes: itself where it is a visible character of Latin-1, else the next of those
// from U+0100 on (bytes_to_unicode of GPT-2's encoder).
func byteRune(b byte) rune {
	if visible(b) {
		return rune(b)
	}
	r := rune(256)
	for i := range b {
		if !visible(i) {
			r++
		}
	}
	return r
}

func visible(b byte) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad }
