package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/internal/checkpoint"
)

// A Calibration has what engines must know of activations before they run: the
// largest magnitudes that were seen, by the name of the module.
//
//	[input]                                # what enters a linear module
//	"model.layers.0.self_attn.q_proj" = 12.5
//	[key]                                  # what a module writes to the KV cache
//	"model.layers.0.self_attn.k_proj" = 31.0
//	[value]
//	"model.layers.0.self_attn.v_proj" = 4.25
//
// JSON has the same: {"input": {"model.layers.0.self_attn.q_proj": 12.5}, …}.
type Calibration struct {
	Input map[string]float64 `toml:"input,omitempty" json:"input,omitempty"`
	Key   map[string]float64 `toml:"key,omitempty" json:"key,omitempty"`
	Value map[string]float64 `toml:"value,omitempty" json:"value,omitempty"`

	constant bool // every scale of an input is 1
	cache    bool // every scale of a KV cache is 1
}

// ConstantCalibration is the name of the calibration without data.
const ConstantCalibration = "constant"

// NewConstantCalibration returns what NVIDIA's data-free recipe has
// (nvfp4_experts_only_input_scale1-kv_fp8_cast of Model Optimizer): scales of
// inputs of 1, which serve magnitudes up to 448·6 in NVFP4 and 448 in FP8, and, where
// they are asked for, scales of the KV cache of 1.
func NewConstantCalibration(inputs, cache bool) *Calibration {
	return &Calibration{constant: inputs, cache: cache}
}

// maxCalibration is the largest calibration file in bytes. A model of 100 000 modules
// has 10 MB.
const maxCalibration = 64 << 20

// ReadCalibration reads a file: TOML, or JSON where its name ends in .json.
func ReadCalibration(path string) (*Calibration, error) {
	data, err := bounded.ReadFile(path, maxCalibration)
	if err != nil {
		return nil, fmt.Errorf("%s: the calibration cannot be read: %w", path, bounded.Cause(err))
	}
	c := &Calibration{}
	if strings.EqualFold(filepath.Ext(path), ".json") {
		err = json.Unmarshal(data, c)
	} else if err = bounded.CheckTOML(data); err == nil {
		err = toml.Unmarshal(data, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: it is no calibration: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if len(c.Input)+len(c.Key)+len(c.Value) == 0 {
		return nil, fmt.Errorf("%s: it has no largest magnitudes: they stand under input, key and value, by the names of modules", path)
	}
	for _, amaxes := range []map[string]float64{c.Input, c.Key, c.Value} {
		for module, amax := range amaxes {
			if !(amax > 0) || math.IsInf(amax, 0) {
				return nil, fmt.Errorf("%s: %s: the largest magnitude of activations is positive and finite, not %g", path, module, amax)
			}
		}
	}
	return c, nil
}

// Write writes c to a new file that ReadCalibration reads: JSON if its name ends in
// .json, otherwise TOML. It never replaces a file: the error is fs.ErrExist then.
func (c *Calibration) Write(path string) error {
	var data []byte
	var err error
	if strings.EqualFold(filepath.Ext(path), ".json") {
		data, err = json.MarshalIndent(c, "", "  ")
		data = append(data, '\n')
	} else {
		data, err = toml.Marshal(c)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // half of a file is none
	}
	return err
}

// inputs reports whether there are scales of inputs.
func (c *Calibration) inputs() bool { return c.constant || len(c.Input) > 0 }

// caches reports whether there are scales of the KV cache.
func (c *Calibration) caches() bool { return c.cache || len(c.Key)+len(c.Value) > 0 }

// calibrate adds the scales of activations to the plan. It fails where one is
// missing, and where one is of no module.
func (p *Plan) calibrate(c *Calibration) error {
	if c == nil {
		return nil
	}
	used := map[string]bool{}
	if c.inputs() {
		if err := p.calibrateInputs(c, used); err != nil {
			return err
		}
	}
	if c.caches() {
		if err := p.calibrateCache(c, used); err != nil {
			return err
		}
	}
	return c.unused(used)
}

// unused fails where there is a magnitude of a module that is not among those that
// were used.
func (c *Calibration) unused(used map[string]bool) error {
	for _, amaxes := range []map[string]float64{c.Input, c.Key, c.Value} {
		for module := range amaxes {
			if !used[module] {
				return fmt.Errorf("calibration: %s is no module that takes such a scale: microscale inspect lists their names", module)
			}
		}
	}
	return nil
}

// calibrateInputs adds the scale of its inputs to every quantized weight.
func (p *Plan) calibrateInputs(c *Calibration, used map[string]bool) error {
	var weights []string
	for _, d := range p.Decisions {
		if d.Action == Quantize {
			weights = append(weights, d.Weight.Name)
		}
	}
	amaxes := c.joinedInputs(weights, used)
	var missing []string
	for i, d := range p.Decisions {
		if d.Action != Quantize {
			continue
		}
		scale, ok := p.inputScale(c, amaxes, d.Weight.Name)
		if !ok {
			missing = append(missing, module(d.Weight.Name))
			continue
		}
		p.Decisions[i].Stored = append(d.Stored, p.Convention.StoredInput(p.Format, d.Weight.Name, scale))
	}
	if len(missing) > 0 {
		return fmt.Errorf("calibration: the largest magnitude of the inputs of %s is missing (%d of %d modules)", missing[0], len(missing), p.Count(Quantize))
	}
	return nil
}

// joinedInputs returns the largest magnitudes of inputs by the joined matrix
// (checkpoint.Joined) that weights are parts of: siblings have the same inputs, and the
// largest of their magnitudes. The modules that it is taken from are used.
func (c *Calibration) joinedInputs(weights []string, used map[string]bool) map[string]float64 {
	amaxes := map[string]float64{}
	for _, w := range weights {
		if amax, ok := c.Input[module(w)]; ok {
			matrix, _ := checkpoint.Joined(w)
			amaxes[matrix] = max(amaxes[matrix], amax)
			used[module(w)] = true
		}
	}
	return amaxes
}

// inputScale returns the scale of the inputs of a weight, by what joinedInputs has; ok
// is false where that is not known.
func (p *Plan) inputScale(c *Calibration, amaxes map[string]float64, weight string) (scale float32, ok bool) {
	if c.constant {
		return 1, true
	}
	matrix, _ := checkpoint.Joined(weight)
	amax, ok := amaxes[matrix]
	return float32(amax / p.largestInput()), ok
}

// module returns the name of the module of a weight.
func module(weight string) string { return strings.TrimSuffix(weight, ".weight") }

// largestInput returns the largest magnitude that a scale of 1 serves.
func (p *Plan) largestInput() float64 {
	largest := float64(p.Format.Element.Max())
	if p.Format.Global {
		largest *= float64(p.Format.Scale.Max())
	}
	return largest
}

// cacheModules are the modules whose output is kept in the KV cache.
var cacheModules = regexp.MustCompile(`(^|\.)(k|v)_proj\.weight$`)

// calibrateCache adds the scales of the KV cache, in E4M3, to the modules that
// write to it, quantized or not.
func (p *Plan) calibrateCache(c *Calibration, used map[string]bool) error {
	for i, d := range p.Decisions {
		found := cacheModules.FindStringSubmatch(d.Weight.Name)
		if found == nil || d.Reason != "" && d.Reason != excluded {
			continue
		}
		amaxes := c.Key
		if found[2] == "v" {
			amaxes = c.Value
		}
		module := module(d.Weight.Name)
		amax, ok := amaxes[module]
		if !ok && !c.cache {
			return fmt.Errorf("calibration: the largest magnitude that %s writes to the KV cache is missing", module)
		}
		used[module] = true
		scale := float32(1)
		if !c.cache {
			scale = float32(amax / float64(format.E4M3.Max()))
		}
		stored, ok := p.Convention.StoredCache(d.Weight.Name, scale)
		if !ok {
			return fmt.Errorf("convention %s stores no scales of a KV cache: leave them out", p.Convention)
		}
		p.Decisions[i].Stored = append(d.Stored, stored)
		p.KVCache = true
	}
	if !p.KVCache {
		return fmt.Errorf("calibration: there are no k_proj and v_proj, whose scales of the KV cache are given")
	}
	return nil
}

// isCacheScale reports whether a weight is the scale of a KV cache.
func isCacheScale(w *checkpoint.Weight) bool {
	_, ok := checkpoint.CacheOwner(w.Name)
	return ok
}
