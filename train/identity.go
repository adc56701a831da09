package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// identity returns, as JSON, everything that the losses depend on. A run resumes only if it is equal.
func (c *Config) identity() (json.RawMessage, error) {
	gradReduce := ""
	if w := c.Parallel.wire(); w != comm.F32 && c.Parallel.dataRanks() > 1 {
		gradReduce = w.String()
	}
	return json.Marshal(struct {
		Model            decoder.Config  `json:"model"`
		Options          decoder.Options `json:"options"`
		Recipe           recipeIdentity  `json:"recipe"`
		Data             string          `json:"data"` // digest
		Steps            int             `json:"steps"`
		Batch            int             `json:"batch"`
		Microbatches     int             `json:"microbatches"`
		Sequence         int             `json:"sequence"`
		HoldQuantized    bool            `json:"fp8_param"`
		Optimizer        AdamW           `json:"optimizer"`
		LearningRate     float64         `json:"learning_rate"`
		Schedule         Schedule        `json:"schedule"`
		Warmup           float64         `json:"warmup"`
		Clip             float64         `json:"clip"`
		Seed             uint64          `json:"seed"`
		ValidationTokens int             `json:"eval_tokens"`
		ValidateEvery    int             `json:"eval_every"`
		GradReduce       string          `json:"grad_reduce,omitempty"` // of several ranks, if not FP32
	}{
		c.Model, c.Options, identityOf(c.Recipe), c.Data.Digest(),
		c.Steps, c.Batch, c.Microbatches, c.Sequence, c.HoldQuantized, c.Optimizer, c.LearningRate, c.Schedule, c.Warmup, c.Clip, c.Seed,
		c.ValidationTokens, c.ValidateEvery, gradReduce,
	})
}

// A recipeIdentity is a recipe with the names of formats instead of their fields.
type recipeIdentity struct {
	Name                string          `json:"name"`
	Input, Weight, Grad operandIdentity `json:",omitzero"`
	HighPrecision       [3]bool         `json:",omitzero"` // by recipe.GEMM
	Activations         string
	Accumulate          [3]mma.Accumulator `json:",omitzero"` // by recipe.GEMM
	Delayed             recipe.Delayed     `json:",omitzero"`
	StoreQuantized      bool               `json:",omitzero"`
	Attention           recipe.Attention   `json:",omitzero"`
}

type operandIdentity struct{ Rowwise, Columnwise quantizerIdentity }

type quantizerIdentity struct {
	Format string // hides that of the Quantizer
	Block  quant.Shape
	quant.Quantizer
}

func identityOf(r recipe.Recipe) recipeIdentity {
	quantizer := func(q quant.Quantizer) quantizerIdentity { return quantizerIdentity{q.Format.Name, q.Format.Block, q} }
	operand := func(o recipe.Operand) operandIdentity {
		return operandIdentity{quantizer(o.Rowwise), quantizer(o.Columnwise)}
	}
	return recipeIdentity{
		Name: r.Name, Input: operand(r.Input), Weight: operand(r.Weight), Grad: operand(r.Grad),
		HighPrecision: r.HighPrecision, Accumulate: r.Accumulate, Activations: r.Activations.Name, StoreQuantized: r.StoreQuantized,
		Delayed: r.Delayed, Attention: r.Attention,
	}
}

// difference describes the first difference between the configuration of a checkpoint and that of a
// run. It returns "" if there is none.
func difference(stored, want json.RawMessage) (string, error) {
	path, a, b, err := firstDifference(stored, want)
	if err != nil || path == "" {
		return "", err
	}
	return fmt.Sprintf("%s is %s in the checkpoint and %s in the configuration", path, a, b), nil
}

// firstDifference returns the path of the first difference between two JSON objects, in the order
// of the keys of second, and the values there. It returns "" if there is none.
func firstDifference(first, second json.RawMessage) (path, a, b string, err error) {
	const missing = "not set"
	x, err := flatten(first)
	if err != nil {
		return "", "", "", err
	}
	y, err := flatten(second)
	if err != nil {
		return "", "", "", err
	}
	for _, l := range y {
		i := slices.IndexFunc(x, func(o leaf) bool { return o.path == l.path })
		switch {
		case i < 0:
			return l.path, missing, l.value, nil
		case x[i].value != l.value:
			return l.path, x[i].value, l.value, nil
		}
	}
	for _, l := range x {
		if !slices.ContainsFunc(y, func(o leaf) bool { return o.path == l.path }) {
			return l.path, l.value, missing, nil
		}
	}
	return "", "", "", nil
}

// A leaf is a value of a JSON document that is not an object.
type leaf struct{ path, value string }

// flatten lists the leaves of an object in order.
func flatten(text json.RawMessage) ([]leaf, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	var leaves []leaf
	var walk func(path string, text json.RawMessage) error
	walk = func(path string, text json.RawMessage) error {
		if text[0] != '{' {
			leaves = append(leaves, leaf{path, string(text)})
			return nil
		}
		d := json.NewDecoder(bytes.NewReader(text))
		if _, err := d.Token(); err != nil {
			return err
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				return err
			}
			if err := walk(strings.TrimPrefix(fmt.Sprintf("%s.%v", path, key), "."), value); err != nil {
				return err
			}
		}
		return nil
	}
	return leaves, walk("", compact.Bytes())
}
