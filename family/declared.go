package family

import (
	"encoding/json"
	"slices"

	"github.com/microscale-go/microscale/internal/configjson"
)

// The keys of configurations for one number each, by family. Sources: the configuration classes of
// transformers 5.24, and the models of vLLM 0.32 and SGLang 0.5.23 for configurations with code of
// their own. Numbers of other modules, such as encoders of images, count too: a tensor is compared with
// all of them.
var (
	expertCountKeys = []string{
		"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "layers_num_experts", "mova_num_experts",
		"mtp_n_routed_experts", "num_moe_experts", "num_routed_experts", "n_experts",
	}
	widthKeys = []string{"hidden_size", "n_embd", "d_model", "dim", "hidden_dim", "model_dim", "moe_latent_size", "moe_hidden_size"}
	tableKeys = []string{"vocab_size", "max_position_embeddings", "type_vocab_size"}
	layerKeys = []string{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}
	nextKeys  = []string{"num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules", "mtp_num_hidden_layers", "mtp_num_layers"}
)

// declared is what a configuration declares.
type declared struct {
	types   []string // model_type of the configuration and of its text_config
	widths  []int64
	experts []int64 // routed ones of a layer
	tables  []int64 // rows of embeddings
	layers  int64   // of the language model; 0: unknown
	next    int64   // layers or modules that predict further tokens
}

// declare reads a configuration. What cannot be read is not declared.
func declare(config []byte) (d declared) {
	var whole map[string]json.RawMessage
	if json.Unmarshal(configjson.Standard(config), &whole) != nil {
		return d
	}
	var text map[string]json.RawMessage
	_ = json.Unmarshal(whole[configjson.TextKey], &text)
	for _, object := range []map[string]json.RawMessage{text, whole} {
		var name string
		if json.Unmarshal(object["model_type"], &name) == nil && name != "" {
			d.types = append(d.types, name)
		}
		for _, n := range []struct {
			keys []string
			to   *int64
		}{{layerKeys, &d.layers}, {nextKeys, &d.next}} {
			for _, key := range n.keys {
				if *n.to == 0 {
					_ = json.Unmarshal(object[key], n.to) // null and other types are none
				}
			}
		}
	}
	d.collect(whole, 4)
	return d
}

// collect adds the numbers of an object and of the objects in it, to a depth.
func (d *declared) collect(object map[string]json.RawMessage, depth int) {
	for key, value := range object {
		var inner map[string]json.RawMessage
		if depth > 0 && len(value) > 0 && value[0] == '{' && json.Unmarshal(value, &inner) == nil {
			d.collect(inner, depth-1)
			continue
		}
		for _, list := range []struct {
			keys []string
			to   *[]int64
			min  int64
		}{{expertCountKeys, &d.experts, 2}, {widthKeys, &d.widths, 1}, {tableKeys, &d.tables, 1}} {
			if slices.Contains(list.keys, key) {
				*list.to = appendNumbers(*list.to, value, list.min)
			}
		}
	}
}

// appendNumbers appends the numbers of a value, one or a list of one for each layer.
func appendNumbers(numbers []int64, value json.RawMessage, least int64) []int64 {
	var one int64
	var list []int64
	if json.Unmarshal(value, &one) == nil {
		list = []int64{one}
	} else if json.Unmarshal(value, &list) != nil {
		return numbers
	}
	for _, n := range list {
		if n >= least && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// hidden reports whether a dimension is as wide as the model.
func (d *declared) hidden(n int64) bool { return slices.Contains(d.widths, n) }
