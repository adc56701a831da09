package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/family"
)

// numberRules are about the sizes of the model in config.json.
var numberRules = []Rule{{
	ID: "L69", Name: "config-number", Severity: Error, check: impossibleNumbers,
	What: "config.json has a number or a type that no model of its family has, such as a size that is 0, negative, no integer, too large " +
		"(also for this program), or no divisor of another one",
	Why:    "programs reject the file, or fail as they build the model",
	Remedy: "correct config.json, or fetch it again",
	Source: "configuration classes of transformers 5.24; families (package family)",
}}

// sizes are the keys of config.json that every program reads as positive integers.
var sizes = []string{"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}

// largestSize is above every size of a published model.
const largestSize = 1 << 24

// impossibleNumbers: sizes are positive integers, here and in text_config, and a known family has its own conditions.
func impossibleNumbers(c *checker) {
	if c.Source.Config == nil {
		return
	}
	found := len(c.found)
	top, _ := membersOf(c.Source.Config) // that it is an object was checked when it was opened
	inner, _ := membersOf(top["text_config"])
	for _, key := range sizes {
		c.checkSize(key, top[key])
		c.checkSize("text_config."+key, inner[key])
	}
	if len(c.found) > found {
		return
	}
	f, s, err := family.Read(c.Source.Config)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		c.report("", "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "config.json: "), "model: "))
	case absent(top["head_dim"]) && s.HeadDim*s.NumAttentionHeads < s.HiddenSize && s.HeadDim == s.HiddenSize/s.NumAttentionHeads && !f.Latent:
		c.report("", "num_attention_heads is %d, want a divisor of hidden_size, %d, as there is no head_dim", s.NumAttentionHeads, s.HiddenSize)
	}
}

// absent reports whether a member is missing, or null, which programs read as the same.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// checkSize reports a value that is no positive integer. Models have lists, and null, where layers differ.
func (c *checker) checkSize(key string, raw json.RawMessage) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return // there is none
	}
	switch value.(type) {
	case json.Number, string, bool:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err != nil || n < 1 || n > largestSize {
			c.report("", "%s is %.40s, want an integer from 1 to %d", key, raw, largestSize)
		}
	}
}
