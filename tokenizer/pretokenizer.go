package tokenizer

// A preTokenizer is what a name of a pre-tokenizer in GGUF files (tokenizer.ggml.pre) means.
type preTokenizer struct {
	digits     bool     // each digit alone, before the patterns
	patterns   []string // divide the text, one after the other; none: that of GPT-2
	nfc        bool     // the tokenizer.json of the models composes characters; llama.cpp does not
	wholeWords bool     // a word that is a token is not merged
	bos        bool     // a text begins with BOS, unless the file says otherwise
	noBOS      bool     // there is no BOS, unless the file names one
	characters bool     // the vocabulary is one of characters with ▁ for spaces, not of bytes
}

// Parts of patterns.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	spaces       = `|\s+(?!\S)|\s+`
	blanks       = `|\s*[\r\n]+` + spaces
	symbols      = `| ?[^\s\p{L}\p{N}]+[\r\n]*`
	path         = `| ?[^\s\p{L}\p{N}]+[\r\n/]*`
	upper, lower = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	lead         = `[^\r\n\p{L}\p{N}]?`
	upperHan     = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	lowerHan     = `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	cased        = lead + upper + `*` + lower + `+`
	capitals     = lead + upper + `+` + lower + `*`
	asciiWord    = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
	accented     = `|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`
)

// Patterns.
const (
	gpt2Words   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+` + spaces
	llama3Words = contractions + `|` + lead + `\p{L}+|\p{N}{1,3}` + symbols + blanks
	jais2Words  = contractions + `|` + lead + `\p{L}+|\p{N}{1,3}` + symbols + `|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|` +
		`\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s`
	minicpm5Words = contractions + `|` + lead + `\p{L}+|\p{N}+` + symbols + blanks
	qwen2Words    = contractions + `|` + lead + `\p{L}+|\p{N}` + symbols + blanks
	plainWords    = lead + `\p{L}+|\p{N}` + symbols + blanks
	qwen35Words   = contractions + `|` + lead + `[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + blanks
	seedWords     = contractions + `|` + lead + `\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+` + blanks
	bailingWords  = `'(?i:[sdmt]|ll|ve|re)|` + lead + `\p{L}+|\p{N}` + symbols + `|\s*[\r\n]` + spaces
	exaoneWords   = contractions + `|` + lead + `(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]` + spaces
	tekkenWords   = cased + `|` + capitals + `|\p{N}` + path + blanks
	gpt4oWords    = cased + contractions + `?|` + capitals + contractions + `?|\p{N}{1,3}` + path + blanks
	youtuWords    = cased + contractions + `?|` + capitals + contractions + `?|\p{N}` + path + blanks
	kimiWords     = `[\p{Han}]+|` + lead + upperHan + `*` + lowerHan + `+` + contractions + `?|` + lead + upperHan + `+` + lowerHan + `*` +
		contractions + `?|\p{N}{1,3}` + symbols + blanks
	deepseekWords = asciiWord + accented + `| ?[\p{P}\p{S}]+[\r\n]*` + blanks
	sparkWords    = asciiWord + accented + `| ?[\p{P}\p{S}]+|[\r\n]` + spaces
	scriptRuns    = "[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]"
	newlines      = `[^\n]+|[\n]+`

	han          = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	hanHangul    = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
	asianScripts = "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f" +
		"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
	youtuScripts = "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f" +
		"\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	latinGreek = "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373" +
		"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556" +
		"\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15" +
		"\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe" +
		"\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115" +
		"\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b" +
		"\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf" +
		"\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb" +
		"\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
	punctuation  = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
	falconMarks  = "[\\p{P}\\$\\+<=>\\^~\\|`]+"
	defaultMarks = `[\p{P}\$\+<=>\^~\|]+`
	threeDigits  = `[0-9][0-9][0-9]`
)

// preTokenizers are the pre-tokenizers by their names. Names, what they share and the options are those
// of llama.cpp (src/llama-vocab.cpp of version 0.5.0, 1 October 2026). A pattern is that of the models'
// own tokenizer.json, which llama.cpp quotes beside its own where its regular expressions cannot say the
// same (upper and lower case of tekken and gpt-4o, groups of digits of tiny_aya, Han of kimi-k2); names
// of models whose tokenizer.json is not known have the pattern of llama.cpp.
var preTokenizers = byName([]struct {
	names []string
	preTokenizer
}{
	{[]string{"", "default"}, preTokenizer{patterns: []string{defaultMarks, gpt2Words, `\p{N}+`, threeDigits}}},
	{[]string{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum", "modern-bert",
		"exaone4",
		"jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code", "roberta-bpe"}, preTokenizer{}},
	{[]string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"}, preTokenizer{digits: true}},
	{[]string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
		preTokenizer{patterns: []string{llama3Words}, wholeWords: true, bos: true}},
	{[]string{"dbrx", "smaug-bpe"}, preTokenizer{patterns: []string{llama3Words}}},
	{[]string{"chatglm-bpe"}, preTokenizer{patterns: []string{llama3Words}, noBOS: true}},
	{[]string{"glm4", "glm5"}, preTokenizer{patterns: []string{llama3Words}, noBOS: true, wholeWords: true}},
	{[]string{"jais-2"}, preTokenizer{patterns: []string{jais2Words}}},
	{[]string{"minicpm5"}, preTokenizer{patterns: []string{`\p{N}{1,3}`, minicpm5Words}, wholeWords: true}},
	{[]string{"qwen2"}, preTokenizer{patterns: []string{qwen2Words}, nfc: true}},
	{[]string{"deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "stablelm2", "solar-open", "grok-2"},
		preTokenizer{patterns: []string{qwen2Words}}},
	{[]string{"laguna"}, preTokenizer{patterns: []string{newlines, qwen2Words}}},
	{[]string{"ufakzeka"}, preTokenizer{patterns: []string{plainWords}}},
	{[]string{"qwen35"}, preTokenizer{patterns: []string{qwen35Words}, nfc: true}},
	{[]string{"seed-coder"}, preTokenizer{patterns: []string{seedWords}}},
	{[]string{"bailingmoe", "bailingmoe2", "llada-moe"}, preTokenizer{patterns: []string{bailingWords}}},
	{[]string{"exaone-moe"}, preTokenizer{patterns: []string{exaoneWords}}},
	{[]string{"tekken"}, preTokenizer{patterns: []string{tekkenWords}, wholeWords: true, bos: true}},
	{[]string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, preTokenizer{patterns: []string{gpt4oWords}}},
	{[]string{"granite-embed-multi-97m"}, preTokenizer{patterns: []string{gpt4oWords}, wholeWords: true}},
	{[]string{"tiny_aya", "cohere2moe"}, preTokenizer{patterns: []string{wordDigitGroups, gpt4oWords}}},
	{[]string{"youtu"}, preTokenizer{patterns: []string{youtuScripts, youtuWords}, wholeWords: true}},
	{[]string{"kimi-k2"}, preTokenizer{patterns: []string{kimiWords}}},
	{[]string{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, preTokenizer{patterns: []string{`\p{N}{1,3}`, han, deepseekWords}}},
	{[]string{"spark2_5"}, preTokenizer{patterns: []string{`\p{N}{1,3}`, han, sparkWords, `\p{N}`}}},
	{[]string{"afmoe"}, preTokenizer{patterns: []string{digitGroups, asianScripts, deepseekWords}}},
	{[]string{"deepseek-llm"}, preTokenizer{patterns: []string{`[\r\n]`, latinGreek, punctuation, `\s+$`, hanHangul, `\p{N}+`}}},
	{[]string{"deepseek-coder"}, preTokenizer{patterns: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, hanHangul, `\p{N}`}}},
	{[]string{"falcon"}, preTokenizer{patterns: []string{falconMarks, gpt2Words, threeDigits}}},
	{[]string{"superbpe"}, preTokenizer{patterns: []string{`\p{N}+`, digitBoundaries}}},
	{[]string{"poro-chat", "bloom", "gpt3-finnish"}, preTokenizer{patterns: []string{` ?` + scriptRuns + `+`}}},
	{[]string{"viking"}, preTokenizer{patterns: []string{` ?` + scriptRuns + `+`, `\p{N}`}}},
	{[]string{"chameleon"}, preTokenizer{patterns: []string{`<sentinel:[0-9]+>`, `IMGIMG[A-I]{1,4}Z`, `[\t\n]|    |  `, `\p{N}`,
		"[\\p{P}!-/:-@\\[-`{-~]", gpt2Words}, bos: true}},
	{[]string{gemma4Model, "granite-embed-multi-311m"}, preTokenizer{patterns: []string{newlines}, characters: true, bos: true}},
	{[]string{"sarvam-moe"}, preTokenizer{patterns: []string{newlines}, characters: true}},
})

func byName(rows []struct {
	names []string
	preTokenizer
}) map[string]preTokenizer {
	all := map[string]preTokenizer{}
	for _, row := range rows {
		for _, name := range row.names {
			all[name] = row.preTokenizer
		}
	}
	return all
}
