package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
)

// A Calibration has the amax of activations, by the name of the module:
//
//	[input]                                # inputs of linear modules
//	"model.layers.0.self_attn.q_proj" = 12.5
//	[key]                                  # outputs that the KV cache stores
//	"model.layers.0.self_attn.k_proj" = 31.0
//	[value]
//	"model.layers.0.self_attn.v_proj" = 4.25
//
// The same in JSON: {"input": {"model.layers.0.self_attn.q_proj": 12.5}, …}.
//
// The constants are those of NVIDIA's data-free recipe
// (nvfp4_experts_only_input_scale1-kv_fp8_cast of Model Optimizer).
type Calibration struct {
	Input map[string]float64 `toml:"input,omitempty" json:"input,omitempty"`
	Key   map[string]float64 `toml:"key,omitempty" json:"key,omitempty"`
	Value map[string]float64 `toml:"value,omitempty" json:"value,omitempty"`

	ConstantInputs bool `toml:"-" json:"-"` // every scale of inputs is 1: magnitudes up to 448·6 in NVFP4, 448 in FP8
	ConstantCache  bool `toml:"-" json:"-"` // every scale of the KV cache is 1

	OfAll bool `toml:"-" json:"-"` // the amaxes are of all modules of the model, also of those that stay unquantized
}

// maxCalibration is the maximum size of a calibration file in bytes. A model of 100 000
// modules has 10 MB.
const maxCalibration = 64 << 20

// minCalibrated is the minimum of an amax. The scale, the amax by at most 448·6, is then a normal
// float32.
const minCalibrated = 1e-30

// ReadCalibration reads a file: the amaxes of statistics if its name ends in .safetensors, JSON if it ends in
// .json, otherwise TOML.
func ReadCalibration(path string) (*Calibration, error) {
	if calibration.IsFile(path) {
		s, err := calibration.Read(path)
		if err != nil {
			return nil, err
		}
		if s.Record() != nil {
			return nil, errors.Join(fmt.Errorf("%s: an importance matrix has no amaxes of activations: name those of calibrate", path), s.Close())
		}
		return &Calibration{Input: s.Amaxes(), OfAll: true}, s.Close()
	}
	data, err := limits.ReadFile(path, maxCalibration)
	if err != nil {
		return nil, fmt.Errorf("%s: read the calibration: %w", path, limits.Cause(err))
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s: the file is empty: fetch it or compute it again", path)
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, fmt.Errorf("%s: neither amaxes as text nor an importance matrix of llama.cpp: name a file that calibrate or "+
			"llama-imatrix wrote, or fetch it again", path)
	}
	c := &Calibration{}
	if strings.EqualFold(filepath.Ext(path), ".json") {
		err = json.Unmarshal(data, c)
	} else if err = limits.CheckTOML(data); err == nil {
		err = toml.Unmarshal(data, c)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s: unexpected %s", cmp.Or(e.Field, "the file"), e.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not a calibration: %s", path, limits.Text(err.Error()))
	}
	if len(c.Input)+len(c.Key)+len(c.Value) == 0 {
		return nil, fmt.Errorf("%s: no values: give the amax of modules, by name, under input, key and value", path)
	}
	for _, amaxes := range []map[string]float64{c.Input, c.Key, c.Value} {
		for module, amax := range amaxes {
			if !(amax >= minCalibrated && amax <= math.MaxFloat32) {
				return nil, fmt.Errorf("%s: %s: the amax is %g, want a number from %g to %.2g", path, limits.Text(module), amax, minCalibrated,
					math.MaxFloat32)
			}
		}
	}
	return c, nil
}

// withInputs returns a copy of c, which may be nil, with the amaxes of statistics.
func (c *Calibration) withInputs(s *calibration.Statistics) *Calibration {
	copied := Calibration{}
	if c != nil {
		copied = *c
	}
	copied.Input, copied.OfAll = s.Amaxes(), true
	return &copied
}

// Write writes c to a new file that ReadCalibration reads: JSON if its name ends in
// .json, otherwise TOML. The file is complete and synced before it gets its name. Write never replaces
// a file: the error is fs.ErrExist then.
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
	return durable.WriteWhole(path, data, durable.RenameNew)
}

// inputs reports whether c has scales of inputs.
func (c *Calibration) inputs() bool { return c.ConstantInputs || len(c.Input) > 0 }

// caches reports whether c has scales of the KV cache.
func (c *Calibration) caches() bool { return c.ConstantCache || len(c.Key)+len(c.Value) > 0 }

// calibrate adds the scales of activations to the plan. It returns an error if one is missing
// or belongs to no module.
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
	if c.OfAll {
		return nil
	}
	return c.unused(used)
}

// unused returns an error if c has a value of a module that is not among the used ones.
func (c *Calibration) unused(used map[string]bool) error {
	for _, amaxes := range []map[string]float64{c.Input, c.Key, c.Value} {
		for module := range amaxes {
			if !used[module] {
				return fmt.Errorf("calibration: %s is not a module that takes such a scale: use the names of the checkpoint's modules",
					limits.Text(module))
			}
		}
	}
	return nil
}

// calibrateInputs adds the scale of inputs to every quantized weight.
func (p *Plan) calibrateInputs(c *Calibration, used map[string]bool) error {
	var weights []string
	for _, d := range p.decisions {
		if d.action == Quantize {
			weights = append(weights, d.Name)
		}
	}
	amaxes := c.joinedInputs(p.source.Family(), weights, used)
	var missing []string
	for i, d := range p.decisions {
		if d.action != Quantize {
			continue
		}
		f := d.quantizer.Format
		if _, a := p.convention.Scheme(f); a != checkpoint.Static {
			continue // its inputs have no stored scale
		}
		scale, ok := p.inputScale(c, amaxes, d.Name, *d.quantizer)
		if !ok {
			missing = append(missing, module(d.Name))
			continue
		}
		p.decisions[i].stored = append(d.stored, p.convention.StoredInput(f, d.Name, scale))
	}
	if len(missing) > 0 {
		return fmt.Errorf("calibration: the amax of the inputs of %s is missing (%d of %d modules)", missing[0], len(missing), p.Count(Quantize))
	}
	return nil
}

// joinedInputs returns the amax of inputs by fused matrix (family.Model.Joined): siblings have
// the same inputs and share the maximum. It adds the modules of these values to used.
func (c *Calibration) joinedInputs(m *family.Model, weights []string, used map[string]bool) map[string]float64 {
	amaxes := map[string]float64{}
	for _, w := range weights {
		if amax, ok := c.Input[module(w)]; ok {
			matrix, _ := m.Joined(w)
			amaxes[matrix] = max(amaxes[matrix], amax)
			used[module(w)] = true
		}
	}
	return amaxes
}

// inputScale returns the scale of the inputs of a weight from the result of joinedInputs, in the format and arithmetic of q. ok
// is false if the amax is unknown.
func (p *Plan) inputScale(c *Calibration, amaxes map[string]float64, weight string, q quant.Quantizer) (scale float64, ok bool) {
	if c.ConstantInputs {
		return 1, true
	}
	matrix, _ := p.source.Family().Joined(weight)
	amax, ok := amaxes[matrix]
	switch largest := largestInput(q.Format); {
	case q.Arithmetic != quant.DecodeFirstBF16:
		return amax / largest, ok
	case q.Format.Global: // compressed-tensors computes the inverse, as for weights, in the dtype of the activations
		return 1 / toBF16(largest*toBF16(1/toBF16(amax))), ok
	default:
		return toBF16(toBF16(amax) / largest), ok
	}
}

// toBF16 rounds x to float32 and then to BF16.
func toBF16(x float64) float64 {
	return float64(format.BF16.Decode(format.BF16.Encode(float32(x))))
}

// module returns the name of the module of a weight.
func module(weight string) string { return strings.TrimSuffix(weight, ".weight") }

// largestInput returns the largest magnitude that a scale of 1 represents.
func largestInput(f quant.Format) float64 {
	largest := float64(f.Element.Max())
	if f.Global {
		largest *= float64(f.Scale.Max())
	}
	return largest
}

// cacheModules matches the modules whose output the KV cache stores.
var cacheModules = regexp.MustCompile(`(^|\.)(k|v)_proj\.weight$`)

// calibrateCache adds the scales of an E4M3 KV cache to the modules that write to it,
// quantized or not.
func (p *Plan) calibrateCache(c *Calibration, used map[string]bool) error {
	for i, d := range p.decisions {
		found := cacheModules.FindStringSubmatch(d.Name)
		if found == nil || d.reason.cause != noCause && d.reason.cause != causeUser {
			continue
		}
		amaxes := c.Key
		if found[2] == "v" {
			amaxes = c.Value
		}
		module := module(d.Name)
		amax, ok := amaxes[module]
		if !ok && !c.ConstantCache {
			return fmt.Errorf("calibration: the amax of the output of %s in the KV cache is missing", module)
		}
		used[module] = true
		scale := float32(1)
		if !c.ConstantCache {
			scale = float32(amax / float64(format.E4M3.Max()))
		}
		stored, ok := p.convention.StoredCache(d.Name, scale)
		if !ok {
			return fmt.Errorf("convention %s stores no scales of a KV cache: leave them out of the calibration", p.convention)
		}
		p.decisions[i].stored = append(d.stored, stored)
		p.kvCache = true
	}
	if !p.kvCache {
		return fmt.Errorf("calibration: it has scales of the KV cache, but the checkpoint has no k_proj and v_proj")
	}
	return nil
}

// isCacheScale reports whether a weight is the scale of a KV cache.
func isCacheScale(w *checkpoint.Weight) bool {
	_, ok := checkpoint.CacheOwner(w.Name)
	return ok
}
