package main

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/internal/catalog"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/mma"
)

// list prints the table of models, or the rules of the one that is given.
func (f *mmaFlags) list(w io.Writer, args []string, asJSON bool) error {
	for _, flag := range []*cli.Choice[*mma.Type]{f.a, f.b, f.scale, f.to} {
		if flag.Given {
			return cli.Misuse("nothing to compute: add --raw or --explain")
		}
	}
	if len(args) > 0 || *f.k != 0 {
		return cli.Misuse("nothing to compute: add --raw or --explain")
	}
	models := mma.Models()
	if f.model.Given {
		models = []*mma.Model{f.model.Value}
	}
	if asJSON {
		return cli.PrintJSON(w, map[string]any{"models": catalog.ModelDocuments(models)})
	}
	if f.model.Given {
		return catalog.PrintModel(w, f.model.Value)
	}
	_, err := fmt.Fprintln(w, catalog.ModelTable(models).Render())
	return err
}
