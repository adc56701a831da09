package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A joint is a place in a tensor that holds a projection of all experts of a layer: [experts, parts·out, in], or
// [experts, in, parts·out] if it is transposed.
type joint struct {
	name       string // of the tensor
	expert     int    // index of the weight: the number of the expert times parts, and which of them it is
	experts    int    // in the tensor
	parts      int    // of an expert: 2 for gate and up
	transposed bool
}

// joinFor puts the weights of the experts of each layer into one tensor for each projection, if the clients of the
// convention have them so, and any is quantized. If none is, they join the single ones themselves.
func (p *Plan) joinFor(c *checkpoint.Convention) error {
	coded := false
	for _, d := range p.decisions {
		_, _, ok := c.Joined(p.source, d.Name)
		coded = coded || ok && (d.action == Quantize || d.action == Relabel)
	}
	if !coded {
		return nil
	}
	return p.joinExperts("clients of convention "+c.Name, func(weight string) (joint, bool) {
		name, expert, ok := c.Joined(p.source, weight)
		return joint{name: name, expert: expert, parts: 1}, ok
	})
}

// joinForTransformers joins the experts of a decoded model that transformers loads in one tensor only, in one dtype.
func (p *Plan) joinForTransformers(dtype safetensors.Dtype) error {
	for i := range p.decisions {
		d := &p.decisions[i]
		if _, ok := client.Join(p.source, d.Name); ok && d.Dense() {
			d.action, d.stored = Decode, []checkpoint.Stored{{Spec: d.DenseSpec(dtype)}}
		}
	}
	return p.joinExperts("transformers", func(weight string) (joint, bool) {
		j, ok := client.Join(p.source, weight)
		return joint{name: j.Tensor, expert: j.Expert*j.Parts + j.Part, parts: j.Parts, transposed: j.Transposed}, ok
	})
}

// joinExperts puts weights into the tensors that who has for them.
func (p *Plan) joinExperts(who string, place func(weight string) (joint, bool)) error {
	tensors := map[string][]int{} // decisions by the name of the tensor
	for i, d := range p.decisions {
		if j, ok := place(d.Name); ok {
			p.decisions[i].joint = j
			tensors[j.name] = append(tensors[j.name], i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if err := p.join(who, tensors[name]); err != nil {
			return fmt.Errorf("%s: %w", p.source.Source.Path, err)
		}
	}
	return nil
}

// join puts weights, given as the decisions about them, into their tensor.
func (p *Plan) join(who string, weights []int) error {
	slices.SortFunc(weights, func(i, j int) int { return p.decisions[i].joint.expert - p.decisions[j].joint.expert })
	first := p.decisions[weights[0]]
	whole := (len(weights) + first.joint.parts - 1) / first.joint.parts * first.joint.parts
	for n := range whole {
		if n >= len(weights) || p.decisions[weights[n]].joint.expert != n {
			return fmt.Errorf("%s: expert %d of its layer is missing, and %s has all in one tensor: fetch the checkpoint again",
				p.decisions[weights[min(n, len(weights)-1)]].Name, n/first.joint.parts, who)
		}
		d := &p.decisions[weights[n]]
		if len(d.stored) != len(first.stored) || !slices.Equal(d.Shape, first.Shape) || d.stored[0].Dtype != first.stored[0].Dtype {
			return fmt.Errorf("%s: it is %s %v, but %s is %s %v, and %s has both in one tensor: quantize all experts of a layer or none",
				d.Name, p.formatName(*d), d.Shape, first.Name, p.formatName(first), first.Shape, who)
		}
		d.file, d.joint.experts = first.file, whole/d.joint.parts
		for k := range d.stored {
			if d.stored[k].Part == checkpoint.Global {
				return fmt.Errorf("%s: it has a global scale, which %s does not read: quantize the original for it", d.Name, who)
			}
			if d.stored[k].Name == d.Name {
				d.stored[k].Name = d.joint.name
			} else {
				d.stored[k].Name = module(d.joint.name) + strings.TrimPrefix(d.stored[k].Name, module(d.Name))
			}
		}
	}
	return nil
}

// shape returns the shape of the tensor for weights of a shape.
func (j joint) shape(one []int64) []int64 {
	rows := int64(j.parts) * one[0]
	if j.transposed {
		return []int64{int64(j.experts), one[1], rows}
	}
	return append([]int64{int64(j.experts), rows}, one[1:]...)
}

// at returns the index in a transposed tensor of an element of a weight of out rows and in columns.
func (j joint) at(out, in, row, column int) int64 {
	expert, part := j.expert/j.parts, j.expert%j.parts
	return (int64(expert)*int64(in)+int64(column))*int64(j.parts*out) + int64(part*out+row)
}

// putTransposed writes the values of the batch to a transposed tensor.
func (b *batch) putTransposed(x tensor.Dense, f *format.Scalar) error {
	out, in := b.d.Matrix()
	size := f.Bits() / 8
	raw, column := make([]byte, x.Rows*size), make([]float32, x.Rows)
	for j := range x.Cols {
		for i := range column {
			column[i] = x.Data[i*x.Cols+j]
		}
		if err := tensor.ToBytes(raw, column, f); err != nil {
			return err
		}
		if err := b.write(0, raw, b.d.joint.at(out, in, b.tile.From, b.tile.FromCol+j)*int64(size)); err != nil {
			return err
		}
	}
	return nil
}
