package mma

import (
	"fmt"
	"strconv"
	"strings"
)

// An Accumulator says how a matrix product adds its terms: as the units of a model do, or, if Model
// is nil, in FP32.
type Accumulator struct {
	Model *Model

	// Promote is the number of products after which the sum of the unit is added to a sum in FP32,
	// and starts again from zero. 0: only at the end. Hopper's FP8 kernels promote every 128
	// (DeepSeek-V3, section 3.3.2; CUTLASS's mma_promotion_interval of 4 instructions).
	Promote int
}

// fp32 is the name of the Accumulator without a model.
const fp32 = "fp32"

func parseAccumulator(text string) (a Accumulator, err error) {
	if strings.EqualFold(text, fp32) {
		return a, nil
	}
	name, interval, promoted := strings.Cut(text, ":")
	if strings.EqualFold(name, fp32) {
		return a, fmt.Errorf("accumulator %q: %s has no promotion interval: use %s, or a model such as hopper-wgmma:128", text, fp32, fp32)
	}
	model, err := lookup(name, fp32)
	if err != nil {
		return a, err
	}
	promote := 0
	if promoted {
		if promote, err = strconv.Atoi(interval); err != nil || promote < 1 {
			return a, fmt.Errorf("accumulator %q: got promotion interval %q, want a number of elements, such as %s:128", text, interval, model)
		}
	}
	return Accumulator{model, promote}, nil
}

// String returns the text that UnmarshalText reads.
func (a Accumulator) String() string {
	switch {
	case a.Model == nil:
		return fp32
	case a.Promote == 0:
		return a.Model.Name
	}
	return fmt.Sprintf("%s:%d", a.Model, a.Promote)
}

// MarshalText returns the text of String.
func (a Accumulator) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText sets a to the accumulator of a text: "fp32", the name of a model, or a name and a
// promotion interval such as "hopper-wgmma:128". On error, a is unchanged.
func (a *Accumulator) UnmarshalText(text []byte) error {
	parsed, err := parseAccumulator(string(text))
	if err == nil {
		*a = parsed
	}
	return err
}
