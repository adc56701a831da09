package llamacpp

import (
	"fmt"

	"github.com/microscale-go/microscale/tokenizer"
)

// byteVocabulary is the value of microscale.vocabulary in config.json for a model whose tokens
// are the 256 bytes in order.
const byteVocabulary = "bytes"

// byT5Class is the byte tokenizer of transformers. Its special tokens precede the bytes.
const byT5Class = "ByT5Tokenizer"

var byT5Specials = []string{"<pad>", "</s>", "<unk>"}

// bytes sets a vocabulary of special tokens and the 256 bytes: BPE on bytes without merges, so
// that every byte of a text is a token. (A vocabulary of kind "llama" would encode a space as
// three bytes.)
func (v *vocabulary) bytes(specials []string, size int) error {
	if size < len(specials)+256 {
		return fmt.Errorf("a vocabulary of bytes has %d tokens, and vocab_size is %d: fetch config.json again", len(specials)+256, size)
	}
	v.model, v.pre, v.merges = bytePairs, "smollm", []string{} // a pre-tokenizer that preserves all spaces
	for _, s := range specials {
		v.tokens, v.types = append(v.tokens, s), append(v.types, controlToken)
	}
	bytes := tokenizer.Bytes()
	for b := range uint32(256) {
		token, err := bytes.Token(b)
		if err != nil {
			return err
		}
		v.tokens, v.types = append(v.tokens, token), append(v.types, normalToken)
	}
	no := false
	v.addBOS, v.addEOS = &no, &no
	if len(specials) == 0 {
		v.bos, v.eos = 0, 0 // NUL, which does not occur in text; the default of llama.cpp is byte 11
	}
	return nil
}
