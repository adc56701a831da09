package comm

import (
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

// named are the formats in which gradients can travel, by the names of the command line.
var named = []struct {
	name string
	wire Wire
}{
	{"fp32", F32},
	{"bf16", BF16},
	{"mxfp8", quantizedWire{quant.Quantizer{Format: quant.MXFP8}}},
	{"fp8-blocks", quantizedWire{quant.Quantizer{Format: quant.FP8Vec128}}}, // 1×128
}

// WireNames returns the names that ParseWire accepts.
func WireNames() []string {
	var names []string
	for _, w := range named {
		names = append(names, w.name)
	}
	return names
}

// ParseWire returns the format of the given name.
func ParseWire(name string) (Wire, error) {
	for _, w := range named {
		if w.name == name {
			return w.wire, nil
		}
	}
	return nil, naming.Unknown("format of gradients", name, WireNames())
}
