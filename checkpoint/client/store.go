package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// Stores returns the convention and the scheme to store format f in for the client: the
// first of the client's conventions with a scheme for f that the client reads. If there is
// none, the error lists the formats that have one.
func (c Client) Stores(f quant.Format) (*checkpoint.Convention, string, error) {
	if convention, scheme, ok := c.stored(f); ok {
		return convention, scheme, nil
	}
	var formats []string
	for _, g := range quant.Formats() {
		if _, _, ok := c.stored(g); ok {
			formats = append(formats, g.Name)
		}
	}
	return nil, "", fmt.Errorf("%s does not read %s: use one of %s", c.Name, f, strings.Join(formats, ", "))
}

func (c Client) stored(f quant.Format) (*checkpoint.Convention, string, bool) {
	for _, name := range c.stores {
		convention, err := checkpoint.LookupConvention(name)
		if err != nil {
			panic(err) // the table names a convention that does not exist
		}
		schemes := convention.Schemes(f)
		if i := slices.IndexFunc(schemes, func(s string) bool { return c.Reads(name, s) }); i >= 0 {
			return convention, schemes[i], true
		}
	}
	return nil, "", false
}
