package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An object is a JSON object that is written.
type object = map[string]any

// steps returns a tokenizer.json without vocabulary, merges and added tokens.
func (v *vocabulary) steps() (object, error) {
	var steps object
	switch v.model {
	case byteLevelModel, gemma4Model:
		pre, ok := preTokenizers[v.pre]
		if !ok {
			return nil, fmt.Errorf("pre-tokenizer %q is not known: want one of %s", v.pre, strings.Join(slices.Sorted(maps.Keys(preTokenizers))[1:],
				", "))
		}
		if steps = pre.steps(); pre.characters {
			steps = v.characters(pre)
		}
	case sentencePieceModel:
		steps = v.sentencePieces()
	case "":
		return nil, errors.New("tokenizer.ggml.model is missing")
	default:
		return nil, fmt.Errorf("model %q is not supported: want %s, %s or %s", v.model, byteLevelModel, sentencePieceModel, gemma4Model)
	}
	var err error
	steps["post_processor"], err = v.template()
	return steps, err
}

// byteLevelStep is the pre-tokenizer and the decoder of bytes as characters.
func byteLevelStep(regex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

// splits are the steps that divide text by patterns.
func (p preTokenizer) splits() (list []object) {
	if p.digits {
		list = append(list, object{"type": "Digits", "individual_digits": true})
	}
	for _, expression := range p.patterns {
		list = append(list, object{"type": "Split", "pattern": object{"Regex": expression}, "behavior": "Isolated", "invert": false})
	}
	return list
}

// steps are those of models of the kind of GPT-2.
func (p preTokenizer) steps() object {
	list := append(p.splits(), byteLevelStep(len(p.patterns) == 0))
	steps := object{
		"normalizer": nil, "pre_tokenizer": object{"type": "Sequence", "pretokenizers": list}, "decoder": byteLevelStep(true),
		"model": object{"type": "BPE", "ignore_merges": p.wholeWords},
	}
	if len(list) == 1 {
		steps["pre_tokenizer"] = list[0]
	}
	if p.nfc {
		steps["normalizer"] = object{"type": "NFC"}
	}
	return steps
}

// spaceNormalizer writes spaces as ▁, spaceDecoders write ▁ as spaces.
var spaceNormalizer, spaceDecoders = object{"type": "Replace", "pattern": object{"String": " "}, "content": space},
	[]object{{"type": "Replace", "pattern": object{"String": space}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}

// sentencePieces are the steps of models of the kind of Llama 2.
func (v *vocabulary) sentencePieces() object {
	steps := v.characters(preTokenizer{})
	if v.spacePrefix == nil || *v.spacePrefix {
		steps["normalizer"] = object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": space}, spaceNormalizer}}
		decoders := append(slices.Clone(spaceDecoders), object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
		steps["decoder"] = object{"type": "Sequence", "decoders": decoders}
	}
	return steps
}

// characters are the steps of models whose symbols are characters, with tokens for bytes.
func (v *vocabulary) characters(p preTokenizer) object {
	m := object{"type": "BPE", "byte_fallback": true, "fuse_unk": true}
	if id := slices.Index(v.types, unknownType); id >= 0 {
		m["unk_token"] = v.tokens[id]
	}
	steps := object{"normalizer": spaceNormalizer, "pre_tokenizer": nil, "decoder": object{"type": "Sequence", "decoders": spaceDecoders},
		"model": m}
	if list := p.splits(); len(list) > 0 {
		steps["pre_tokenizer"] = list[0]
	}
	return steps
}

// template returns the post-processor, nil if a text has no tokens before and after it.
func (v *vocabulary) template() (any, error) {
	single, special := []object{}, object{}
	for _, end := range []struct {
		name     string
		add      bool
		sequence bool // the text follows
	}{{bosName, v.addsBOS(), true}, {eosName, v.addEOS != nil && *v.addEOS, false}} {
		id, ok := v.id(end.name)
		switch {
		case !end.add:
		case !ok:
			return nil, errors.New("the file adds a token that it does not name")
		default:
			token := v.tokens[id]
			single = append(single, object{"SpecialToken": object{"id": token, "type_id": 0}})
			special[token] = object{"id": token, "ids": []uint32{id}, "tokens": []string{token}}
		}
		if end.sequence {
			single = append(single, object{"Sequence": object{"id": "A", "type_id": 0}})
		}
	}
	if len(special) == 0 {
		return nil, nil
	}
	pair := []object{{"Sequence": object{"id": "A", "type_id": 0}}, {"Sequence": object{"id": "B", "type_id": 1}}}
	return object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}, nil
}

// addsBOS reports whether a text begins with the token for that. The defaults are those of llama.cpp
// (src/llama-vocab.cpp).
func (v *vocabulary) addsBOS() bool {
	switch {
	case v.model == sentencePieceModel:
		return v.addBOS == nil || *v.addBOS
	case v.addBOS != nil && !preTokenizers[v.pre].characters:
		return *v.addBOS
	}
	return preTokenizers[v.pre].bos // of gemma4 whatever the file says
}

// json returns the text of a tokenizer.json: the steps, and the vocabulary, merges and added tokens of f.
func (v *vocabulary) json(f *file) ([]byte, error) {
	data, err := v.steps()
	if err != nil {
		return nil, err
	}
	m, _ := data["model"].(object) // steps sets it
	for _, key := range []string{"dropout", "continuing_subword_prefix", "end_of_word_suffix"} {
		m[key] = nil
	}
	m["vocab"], m["merges"] = byID{v.tokens, f.Model.Vocab}, f.Model.Merges
	data["version"], data["truncation"], data["padding"] = "1.0", nil, nil
	data["added_tokens"] = append([]addedToken{}, f.AddedTokens...) // never null
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(data)
	return b.Bytes(), err
}

// byID writes a vocabulary in the order of ids.
type byID struct {
	tokens []string
	ids    map[string]uint32
}

// MarshalJSON returns an object of ids.
func (v byID) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for id, token := range v.tokens {
		if v.ids[token] != uint32(id) {
			continue
		}
		key, err := json.Marshal(token)
		if err != nil {
			return nil, err
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = fmt.Appendf(append(b, key...), ":%d", id)
	}
	return append(b, '}'), nil
}
