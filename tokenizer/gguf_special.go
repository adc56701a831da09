package tokenizer

import (
	"fmt"
	"slices"
)

// Names of special tokens in the keys tokenizer.ggml.NAME_token_id.
const (
	bosName       = "bos"
	eosName       = "eos"
	eotName       = "eot"
	eomName       = "eom"
	unknownName   = "unknown"
	separatorName = "seperator" //nolint:misspell // GGUF spells it so
	paddingName   = "padding"
	maskName      = "mask"
)

var specialNames = []string{bosName, eosName, eotName, eomName, unknownName, separatorName, paddingName, maskName}

// defaultIDs are the special tokens that llama.cpp takes where a file does not name them, by the kind of the tokenizer.
var defaultIDs = map[string]map[string]uint32{
	sentencePieceModel: {bosName: 1, eosName: 2, unknownName: 0},
	byteLevelModel:     {bosName: 11, eosName: 11},
}

// id returns a special token. ok is false if there is none. A number that no token has counts as missing.
func (v *vocabulary) id(name string) (id uint32, ok bool) {
	if id := v.ids[name]; id != nil && uint64(*id) < uint64(len(v.tokens)) {
		return *id, true
	}
	if name == bosName && v.model != sentencePieceModel && preTokenizers[v.pre].noBOS {
		return 0, false
	}
	id, ok = defaultIDs[v.model][name]
	return id, ok && uint64(id) < uint64(len(v.tokens))
}

func (v *vocabulary) kind(id uint32) int32 {
	if v.types == nil {
		return normalType
	}
	return v.types[id]
}

// retype gives the ends of answers the type of special tokens.
func (v *vocabulary) retype() {
	if v.types == nil {
		return // the file types nothing
	}
	v.types = slices.Clone(v.types)
	for _, id := range v.endIDs() {
		if kind := v.types[id]; kind == normalType || kind == userDefinedType {
			v.types[id] = controlType
			v.retyped = append(v.retyped, id)
		}
	}
}

// Special are the special tokens that the metadata of a GGUF file defines.
type Special struct {
	IDs     map[string]uint32 // by the names in its keys: bos, eos, unknown, padding, …
	Ends    []uint32          // tokens that end an answer
	Retyped []string          // those of Ends that the file types as text
}

// GGUFSpecial reads the special tokens of a GGUF file. value is that of FromGGUF. Where the file does not
// name them, they are those that llama.cpp takes.
func GGUFSpecial(value func(key string) any) (Special, error) {
	v, err := readVocabulary(value)
	if err != nil {
		return Special{}, fmt.Errorf("tokenizer: %w", err)
	}
	s := Special{IDs: map[string]uint32{}, Ends: v.endIDs()}
	for _, name := range specialNames {
		if id, ok := v.id(name); ok {
			s.IDs[name] = id
		}
	}
	for _, id := range v.retyped {
		s.Retyped = append(s.Retyped, v.tokens[id])
	}
	return s, nil
}
