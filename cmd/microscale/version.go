package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/cpu"
)

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the kernels of this processor",
		Long: `Print the version of the program, the Go release that built it, and the kernel
tier of this processor. --verbose adds the features of this processor that
kernels use, and the rows of all kernel tables: package, what a kernel computes,
its tier, and what this processor lacks for it.`,
		Example:           "  microscale version\n  microscale version --verbose\n  microscale version --json",
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := addJSON(cmd)
	verbose := cmd.Flags().Bool("verbose", false, "list all kernels, and what this processor lacks for them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versionDocument{Version: show.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			Kernels: cpu.Best().String()}
		if *verbose {
			v.list()
		}
		if *asJSON {
			return show.PrintJSON(cmd.OutOrStdout(), v)
		}
		return v.print(cmd.OutOrStdout())
	}
	return cmd
}

// A versionDocument is the version as JSON.
type versionDocument struct {
	Version  string         `json:"version"`
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Kernels  string         `json:"kernels"`
	Features []string       `json:"features,omitempty"` // of this processor
	Forms    []formDocument `json:"forms,omitempty"`    // the rows of the kernel tables
}

// A formDocument is a row of a kernel table.
type formDocument struct {
	Package   string   `json:"package"`
	Primitive string   `json:"primitive"`
	Tier      string   `json:"tier"`
	Lacks     []string `json:"lacks"` // features that this processor has not; none: the kernel runs
}

// list adds the features of this processor and the rows of the kernel tables.
func (v *versionDocument) list() {
	v.Features = strings.Fields(cpu.Detected().String())
	for _, f := range cpu.Forms() {
		lacks := strings.Fields((f.Needs &^ cpu.Detected()).String())
		row := formDocument{f.Package, f.Primitive, cpu.TierOf(f.Needs).String(), show.OrEmpty(lacks)}
		if last := len(v.Forms) - 1; last < 0 || !reflect.DeepEqual(v.Forms[last], row) {
			v.Forms = append(v.Forms, row)
		}
	}
}

// print prints the document as text.
func (v *versionDocument) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "microscale %s\n%s %s, kernels %s\n", v.Version, v.Go, v.Platform, v.Kernels)
	if len(v.Forms) > 0 {
		fmt.Fprintf(&b, "features: %s\n\n", cmp.Or(strings.Join(v.Features, " "), "none that kernels use"))
	}
	for _, f := range v.Forms {
		state := "runs"
		if len(f.Lacks) > 0 {
			state = "lacks " + strings.Join(f.Lacks, " ")
		}
		fmt.Fprintf(&b, "%-8s %-50s %-11s %s\n", f.Package, f.Primitive, f.Tier, state)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
