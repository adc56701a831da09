package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// A clientFlag is --for: the client that a checkpoint is written for.
type clientFlag struct {
	*choice[verify.Client]
}

// addFor gives cmd --for, in place of --convention.
func addFor(cmd *cobra.Command) clientFlag {
	names := stringers(verify.Clients())
	c := addChoice(cmd, "for", "store the result as the client `NAME` reads it: "+strings.Join(names, ", "), "", names, verify.LookupClient)
	exclusive(cmd, "for", "convention")
	return clientFlag{c}
}

// choose sets the convention, and the scheme unless one is given, to those that the
// client reads for f.
func (c clientFlag) choose(f quant.Format, layout *choice[*checkpoint.Convention], scheme *choice[string]) error {
	if !c.given {
		return nil
	}
	convention, name, err := c.value.Stores(f)
	if err != nil {
		return misuse("--for %v", err)
	}
	layout.value, layout.given = convention, true
	if !scheme.given {
		scheme.value = name
	} else if !c.value.Reads(convention.Name, scheme.value) {
		return misuse("--for %s: it does not read the scheme %s of %s: use %s, or leave --scheme out", c.value, scheme.value, convention, name)
	}
	return nil
}

// lookupConvention is checkpoint.LookupConvention, and points to --for where the name
// is that of a client.
func lookupConvention(name string) (*checkpoint.Convention, error) {
	convention, err := checkpoint.LookupConvention(name)
	if err == nil {
		return convention, nil
	}
	if client, clientErr := verify.LookupClient(name); clientErr == nil {
		return nil, fmt.Errorf("%s is a client: use --for %s", name, client)
	}
	return nil, err
}

// clientTable says as what each format is stored for each client.
func clientTable() table.Writer {
	columns := []column{{"format", false}}
	for _, c := range verify.Clients() {
		columns = append(columns, column{c.Name, false})
	}
	t := newTable(columns...)
	for _, f := range quant.Formats() {
		row, stored := table.Row{f.Name}, false
		for _, c := range verify.Clients() {
			cell := "-"
			if convention, scheme, err := c.Stores(f); err == nil {
				cell, stored = strings.TrimSpace(convention.Name+" "+scheme), true
			}
			row = append(row, cell)
		}
		if stored {
			t.AppendRow(row)
		}
	}
	return t
}
