package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// A Storage is a convention in which a client reads a block format, and its schemes that the client
// reads, the default first.
type Storage struct {
	Convention *checkpoint.Convention
	Schemes    []string
}

// String returns the convention and its default scheme.
func (s Storage) String() string {
	if len(s.Schemes) == 0 {
		return s.Convention.Name
	}
	return strings.TrimSpace(s.Convention.Name + " " + s.Schemes[0])
}

// Stores returns how to store format f for the client, the preferred convention first. If the client
// reads none, the error lists the formats that it reads.
func (c Client) Stores(f quant.Format) ([]Storage, error) {
	if storages := c.stored(f); len(storages) > 0 {
		return storages, nil
	}
	if !f.Scaled() && f.Block.Cols == 0 { // not a type of GGUF files
		return nil, fmt.Errorf("%s has no scales, and %s reads an unquantized checkpoint as it is: choose a block-scaled format", f, c.Name)
	}
	var formats []string
	for _, g := range append(quant.Formats(), quant.Q8_0) {
		if len(c.stored(g)) > 0 {
			formats = append(formats, g.Name)
		}
	}
	if c.imports { // it reads other formats to convert them
		return nil, fmt.Errorf("files for %s cannot hold %s: use one of %s", c.Name, f, strings.Join(formats, ", "))
	}
	return nil, fmt.Errorf("%s does not read %s: use one of %s", c.Name, f, strings.Join(formats, ", "))
}

// StoresAll is Stores for a checkpoint of several formats: conventions in which the client reads all of them. The schemes are those
// of the first.
func (c Client) StoresAll(formats ...quant.Format) ([]Storage, error) {
	all, err := c.Stores(formats[0])
	if err != nil || len(formats) == 1 {
		return all, err
	}
	for _, f := range formats[1:] {
		others, err := c.Stores(f)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(s Storage) bool {
			return !slices.ContainsFunc(others, func(o Storage) bool { return o.Convention.Is(s.Convention) })
		})
	}
	all = slices.DeleteFunc(all, func(s Storage) bool { return !s.Convention.Mixes() || !slices.Contains(c.mixes, s.Convention.Name) })
	if len(all) == 0 {
		names := make([]string, len(formats))
		for i, f := range formats {
			names[i] = f.Name
		}
		return nil, fmt.Errorf("%s reads %s together in no convention that is written: use fewer formats, or choose a convention without "+
			"a client",
			c.Name, strings.Join(names, ", "))
	}
	return all, nil
}

func (c Client) stored(f quant.Format) (storages []Storage) {
	for _, name := range c.stores {
		convention, err := checkpoint.LookupConvention(name)
		if err != nil {
			panic(err) // the table names a convention that does not exist
		}
		schemes := c.Schemes(convention, f)
		if len(schemes) > 0 || !f.Scaled() && convention.Holds(f) {
			storages = append(storages, Storage{convention, schemes})
		}
	}
	return storages
}

// Schemes returns the schemes of a convention for f that the client reads.
func (c Client) Schemes(convention *checkpoint.Convention, f quant.Format) []string {
	return slices.DeleteFunc(convention.Schemes(f), func(s string) bool { return !c.Reads(convention.Name, s) })
}

// NeedsBF16 reports whether the client computes with the quantized weights of a format in BF16, and
// fails if the other weights have another dtype.
func (c Client) NeedsBF16(f quant.Format) bool { return c.bf16 && f.ByteScales() }
