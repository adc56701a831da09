package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
)

// A config is what rules read of the description of the quantization, beyond what package checkpoint returns.
type config struct {
	method string
	groups []group // of compressed-tensors, in the order of the file
	format string
	layers map[string]layer // of modelopt
	cache  bool             // a quantized KV cache is declared
	online []string         // locations of transforms that are applied at run time
	powers bool             // scales are declared as powers of two

	rotation int // hadamard_group_size of FP-Quant; 0: none

	unreadable []string // what members of other types than expected are

	sidecar *sidecar // hf_quant_config.json; nil: none, or no JSON
	main    *sidecar // the same of config.json; nil: none
}

// A group is one of config_groups that quantizes weights.
type group struct {
	name    string
	Targets []string `json:"targets"`
	Format  *string  `json:"format"`
	Weights *struct {
		Bits       int     `json:"num_bits"`
		Type       string  `json:"type"`
		GroupSize  *int    `json:"group_size"`
		Strategy   string  `json:"strategy"`
		ScaleDtype *string `json:"scale_dtype"`
	} `json:"weights"`
}

// A layer is one of quantized_layers.
type layer struct {
	Algo      string `json:"quant_algo"`
	GroupSize int    `json:"group_size"`
}

// A sidecar is what both files of modelopt say.
type sidecar struct {
	Algo      string           `json:"quant_algo"`
	GroupSize int              `json:"group_size"`
	Cache     any              `json:"kv_cache_quant_algo"`
	Exclude   []string         `json:"exclude_modules"`
	Ignore    []string         `json:"ignore"`
	Layers    map[string]layer `json:"quantized_layers"`
}

// The conventions that rules are about.
var (
	modelOpt          = convention("modelopt")
	compressedTensors = convention("compressed-tensors")
)

// convention returns a convention that exists.
func convention(name string) *checkpoint.Convention {
	c, err := checkpoint.LookupConvention(name)
	if err != nil {
		panic(err)
	}
	return c
}

// readConfig reads what it can; the rest has rules of package checkpoint.
func readConfig(m *checkpoint.Model) (c config) {
	raw, _ := m.Source.QuantizationConfig()
	var members struct {
		Method    string           `json:"quant_method"`
		Format    string           `json:"format"`
		Groups    json.RawMessage  `json:"config_groups"`
		ScaleFmt  string           `json:"scale_fmt"`
		Rotation  int              `json:"hadamard_group_size"`
		Cache     any              `json:"kv_cache_scheme"`
		Algo      any              `json:"kv_cache_quant_algo"`
		Layers    map[string]layer `json:"quantized_layers"`
		Transform struct {
			Groups map[string]struct {
				Apply []struct {
					Location string `json:"location"`
				} `json:"apply"`
			} `json:"config_groups"`
		} `json:"transform_config"`
	}
	c.unreadableIn(hf.ConfigName, json.Unmarshal(raw, &members)) // members of other types do not keep the others from being read
	c.method, c.format, c.groups, c.layers = members.Method, members.Format, c.readGroups(members.Groups), members.Layers
	c.checkCache(hf.ConfigName+": kv_cache_quant_algo", members.Algo)
	if name, ok := members.Cache.(string); ok { // as Model Optimizer writes algorithms other than FP8
		c.checkCache(hf.ConfigName+": kv_cache_scheme", name)
	}
	c.cache, c.powers = members.Cache != nil || members.Algo != nil, members.ScaleFmt == "ue8m0"
	c.rotation = members.Rotation
	for _, g := range members.Transform.Groups {
		for _, apply := range g.Apply {
			if !strings.HasPrefix(apply.Location, "weight_") { // which the weights contain
				c.online = append(c.online, apply.Location)
			}
		}
	}
	slices.Sort(c.online)
	c.online = slices.Compact(c.online)
	var main sidecar
	if err := json.Unmarshal(raw, &main); main.Algo != "" {
		c.unreadableIn(hf.ConfigName, err)
		c.main = &main
	}
	if data, ok := m.Source.Companion(modelOpt.Sidecar()); ok {
		var file struct {
			Quantization *sidecar `json:"quantization"`
		}
		if c.unreadableIn(modelOpt.Sidecar(), json.Unmarshal(data, &file)); file.Quantization != nil {
			c.sidecar = file.Quantization
			c.cache = c.cache || c.sidecar.Cache != nil
			c.checkCache(modelOpt.Sidecar()+": quantization.kv_cache_quant_algo", c.sidecar.Cache)
		}
	}
	if c.layers == nil && c.sidecar != nil {
		c.layers = c.sidecar.Layers
	}
	return c
}

// unreadableIn keeps the error of a member that has another type than rules expect.
func (c *config) unreadableIn(file string, err error) {
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) {
		c.unreadable = append(c.unreadable, fmt.Sprintf("%s: %s has the JSON type %s, which rules cannot read", file,
			cmp.Or(other.Field, "it"), other.Value))
	}
}

// cacheAlgos are the algorithms of the KV cache that Model Optimizer writes (modelopt/torch/export/model_config.py).
var cacheAlgos = []string{"FP8", "INT8", "NVFP4", "NVFP4_AFFINE"}

// checkCache keeps the error of a member that names an algorithm of the KV cache, nil for none.
func (c *config) checkCache(member string, algo any) {
	if name, ok := algo.(string); algo == nil || ok && slices.Contains(cacheAlgos, name) {
		return
	}
	text, err := json.Marshal(algo)
	if err != nil {
		panic(err) // it was JSON
	}
	c.unreadable = append(c.unreadable, fmt.Sprintf("%s is %.100s, which is no known algorithm of the KV cache: want null or one of %s",
		member, text, strings.Join(cacheAlgos, ", ")))
}

// readGroups returns the groups of weights in the order of the file, without those that have a member of another type.
func (c *config) readGroups(raw json.RawMessage) (groups []group) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return groups
		}
		g := group{}
		err = d.Decode(&g)
		c.unreadableIn(fmt.Sprintf("%s: config_groups.%s", hf.ConfigName, name), err)
		if g.name, _ = name.(string); g.Weights != nil && err == nil {
			groups = append(groups, g)
		}
	}
	return groups
}
