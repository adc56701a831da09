package recipe

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// withElement returns f with another element format: the row of quant's table if there is one.
func withElement(f quant.Format, element *format.Scalar) quant.Format {
	f.Element = element
	return named(f, fmt.Sprintf("%s-%s", f.Name, element))
}

// withBlock returns f with another block shape.
func withBlock(f quant.Format, block quant.Shape) quant.Format {
	f.Block = block
	return named(f, fmt.Sprintf("%s-%dx%d", f.Name, block.Rows, block.Cols))
}

// named returns the row of quant's table with the same storage as f, or f with the given name.
func named(f quant.Format, name string) quant.Format {
	for _, row := range quant.Formats() {
		if row.Element == f.Element && row.Scale == f.Scale && row.Block == f.Block && row.Global == f.Global {
			return row
		}
	}
	f.Name, f.Aliases = name, ""
	return f
}

// lookupFormat returns a row of quant's table or one of the E5M2 variants of hybrid recipes.
func lookupFormat(name string) (quant.Format, error) {
	for _, f := range quant.Formats() {
		if f.Element == format.E4M3 {
			if e5m2 := withElement(f, format.E5M2); strings.EqualFold(e5m2.Name, name) {
				return e5m2, nil
			}
		}
	}
	return quant.Lookup(name)
}
