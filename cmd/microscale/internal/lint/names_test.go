package lint

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestRepairNames: where dtypes, shapes and values decide, a repair gives every tensor its name, dtype, shape and bytes back. Otherwise
// nothing changes, and the reason is given.
func TestRepairNames(t *testing.T) {
	const q, gate, up = layer0 + "self_attn.q_proj", layer0 + "mlp.gate_proj", layer0 + "mlp.up_proj"
	each := func(f func(d *directory, module string)) func(d *directory) {
		return func(d *directory) {
			for _, name := range slices.Sorted(maps.Keys(d.tensors)) { // of all quantized modules
				if module, ok := strings.CutSuffix(name, ".weight_scale"); ok {
					f(d, module)
				} else if module, ok := strings.CutSuffix(name, ".weight_scale_inv"); ok {
					f(d, module)
				}
			}
		}
	}
	number := func(e entry) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(e.data)) }
	for _, tc := range []struct {
		name    string
		stored  stored
		damage  func(d *directory)
		left    string // "": all is repaired
		changes int
	}{
		{"blocks with the name of deepseek", ctBlocks, each(func(d *directory, m string) {
			d.move(m+".weight_scale", m+".weight_scale_inv")
		}), "", 5},
		{"blocks with the name of compressed-tensors", deepseek, each(func(d *directory, m string) {
			d.move(m+".weight_scale_inv", m+".weight_scale")
		}), "", 5},
		{"blocks with the name of DeepSeek-V4", ctBlocks, each(func(d *directory, m string) {
			d.move(m+".weight_scale", m+".scale")
		}), "", 5},
		{"codes and scales exchanged", ctNVFP4, func(d *directory) {
			d.move(q+".weight_packed", q+".weight_scale", q+".weight_scale", q+".weight_packed")
		}, "", 2},
		{"bytes exchanged", ctMXFP8, func(d *directory) {
			d.move(gate+".weight", gate+".weight_scale", gate+".weight_scale", gate+".weight")
		}, "", 2},
		{"4 bits without _packed", stored{format: quant.MXFP4, convention: "compressed-tensors"}, func(d *directory) {
			d.move(up+".weight_packed", up+".weight")
		}, "", 1},
		{"divisor in a scale of modelopt", moNVFP4, func(d *directory) {
			d.move(up+".weight", up+".weight_packed")
			d.move(up+".weight_scale_2", up+".weight_global_scale", up+".input_scale", up+".input_global_scale")
			for _, name := range []string{".weight_global_scale", ".input_global_scale"} {
				e := d.tensors[up+name]
				d.set(up+name, e.Dtype, []int64{1}, float(1/number(e)))
			}
		}, "", 3},
		{"divisor under the name of a scale", ctNVFP4, func(d *directory) {
			d.move(up+".weight_global_scale", up+".weight_scale_2")
		}, "", 1},
		{"two tensors of scales", ctBlocks, func(d *directory) {
			e := d.tensors[up+".weight_scale"]
			d.move(up+".weight_scale", up+".weight_scale_inv")
			d.set(up+".scale", e.Dtype, e.Shape, e.data)
		}, "it could be read in 2 ways: scale is weight_scale; or weight_scale_inv is weight_scale", 0},
		{"reciprocals of scales", ctBlocks, func(d *directory) {
			e := d.tensors[up+".weight_scale"]
			d.move(up+".weight_scale", up+".weight_scale_inv")
			e.put(1 / number(e))
		}, "its scales may be reciprocals", 0},
		{"scale of activations that contradicts its name", ctW4A4, func(d *directory) {
			d.asModelOpt(up)
			d.tensors[up+".input_scale"].put(64)
		}, "its direction is not known", 0},
		{"another format", ctNVFP4, func(d *directory) {
			d.move(up+".weight_packed", up+".weight")
			d.set(up+".weight_scale", safetensors.U8, []int64{128, 4}, make([]byte, 512))
		}, "", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := dense(128, 128).quantize(t, tc.stored)
			want, d := readDirectory(t, dir), readDirectory(t, dir)
			tc.damage(d)
			d.write(t, dir)
			clients := "vllm"
			out, r := repaired(t, dir, "", clients)
			if tc.changes < 0 {
				if slices.ContainsFunc(r.Left, func(f Finding) bool { return f.Rule.Name == foreignNames }) || len(r.Left) == 0 {
					t.Errorf("left are %+v", r.Left)
				}
				return
			}
			if len(r.Changes) != tc.changes {
				t.Errorf("changes %+v, want %d", r.Changes, tc.changes)
			}
			if tc.left != "" {
				want = d
				if len(r.Left) != 1 || r.Left[0].Rule.Name != foreignNames || !strings.Contains(r.Left[0].Text, tc.left) {
					t.Errorf("left are %+v, want %q", r.Left, tc.left)
				}
			} else if report := check(t, out, clients); len(report.Findings) > 0 || len(r.Left) > 0 {
				t.Errorf("after the repair: %s\nleft %+v", texts(report), r.Left)
			}
			got := readDirectory(t, out)
			if len(got.tensors) != len(want.tensors) {
				t.Errorf("%d tensors, want %d", len(got.tensors), len(want.tensors))
			}
			for name, e := range want.tensors {
				if g := got.tensors[name]; g.Dtype != e.Dtype || !slices.Equal(g.Shape, e.Shape) || !bytes.Equal(g.data, e.data) {
					t.Errorf("%s is %s %v, want %s %v, or has other bytes", name, g.Dtype, g.Shape, e.Dtype, e.Shape)
				}
			}
		})
	}
}
