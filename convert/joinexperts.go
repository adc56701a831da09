package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
)

// joinExperts puts the weights of the experts of each layer into one tensor for each projection, if the clients of the
// convention have them so, and any is quantized. If none is, they join the single ones themselves.
func (p *Plan) joinExperts() error {
	layers := map[string][]int{} // decisions by the name of the tensor
	coded := false
	for i, d := range p.decisions {
		name, expert, ok := p.convention.Joined(p.source, d.Name)
		if !ok || d.ExpertModules() != nil {
			continue
		}
		coded = coded || d.action == Quantize || d.action == Relabel
		p.decisions[i].expert = expert
		layers[name] = append(layers[name], i)
	}
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		if !coded {
			for _, i := range layers[name] {
				p.decisions[i].expert = 0
			}
			continue
		}
		if err := p.join(name, layers[name]); err != nil {
			return fmt.Errorf("%s: %w", p.source.Source.Path, err)
		}
	}
	return nil
}

// join puts weights, given as the decisions about them, into the tensor of a name.
func (p *Plan) join(name string, experts []int) error {
	slices.SortFunc(experts, func(i, j int) int { return p.decisions[i].expert - p.decisions[j].expert })
	first := p.decisions[experts[0]]
	for n, i := range experts {
		d := &p.decisions[i]
		if d.expert != n {
			return fmt.Errorf("%s: expert %d of its layer is missing, and clients of %s hold all in one tensor: fetch the checkpoint again",
				d.Name, n, p.convention)
		}
		if len(d.stored) != len(first.stored) || !slices.Equal(d.Shape, first.Shape) || d.stored[0].Dtype != first.stored[0].Dtype {
			return fmt.Errorf("%s: it is %s %v, but %s is %s %v, and clients of %s hold both in one tensor: quantize all experts of a layer or none",
				d.Name, p.formatName(*d), d.Shape, first.Name, p.formatName(first), first.Shape, p.convention)
		}
		d.file, d.experts = first.file, len(experts)
		for k := range d.stored {
			if d.stored[k].Part == checkpoint.Global {
				return fmt.Errorf("%s: it has a global scale, which clients of convention %s do not read: quantize the original for it",
					d.Name, p.convention)
			}
			d.stored[k].Name = module(name) + strings.TrimPrefix(d.stored[k].Name, module(d.Name))
		}
	}
	return nil
}
