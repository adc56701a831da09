package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/cpu"
)

// TestVersionVerbose checks that the kernels of every table are listed, and that those run whose features this
// processor has.
func TestVersionVerbose(t *testing.T) {
	status, out, stderr := execute("", "version", "--verbose")
	if status != exitDone {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	d := parsed[versionDocument](t, done(t, "version", "--verbose", "--json"))
	for _, f := range d.Forms {
		state := "runs"
		if len(f.Lacks) > 0 {
			state = "lacks " + strings.Join(f.Lacks, " ")
		}
		tier, err := cpu.ParseTier(f.Tier)
		if err != nil || len(f.Lacks) > 0 && slices.Contains(cpu.Tiers(), tier) {
			t.Errorf("%+v, %v: this processor has the tiers %v", f, err, cpu.Tiers())
		}
		listed := func(line string) bool {
			words := strings.Join(strings.Fields(line), " ")
			return words == f.Package+" "+f.Primitive+" "+f.Tier+" "+state
		}
		if !slices.ContainsFunc(strings.Split(out, "\n"), listed) {
			t.Errorf("%+v: no line says that it %s", f, state)
		}
	}
	for _, k := range gemm.Kernels() {
		if !slices.ContainsFunc(d.Forms, func(f formDocument) bool { return f.Package == "gemm" && f.Primitive == k.Name }) {
			t.Errorf("%s is not listed", k.Name)
		}
	}
	if !cpu.Has(cpu.AVX2.Set()) {
		return // tables may be empty
	}
	for _, name := range strings.Fields("quant measure tensor gemm nn mma train bench") {
		if !slices.ContainsFunc(d.Forms, func(f formDocument) bool { return f.Package == name && f.Tier == "avx2" }) {
			t.Errorf("the table of %s has no kernel for AVX2", name)
		}
	}
}

// TestRowsInOrder checks that the rows of every kernel table are in order of preference, since the first whose features a
// processor has is the one that runs: no row follows one of the same primitive of a lower tier, or one that needs nothing else.
func TestRowsInOrder(t *testing.T) {
	forms := cpu.Forms()
	for i, f := range forms {
		for _, earlier := range forms[:i] {
			if earlier.Package != f.Package || earlier.Primitive != f.Primitive {
				continue
			}
			if cpu.TierOf(f.Needs) > cpu.TierOf(earlier.Needs) || f.Needs.Has(earlier.Needs) {
				t.Errorf("%s, %s: the row that needs %s follows one that needs %s, which runs in its place", f.Package, f.Primitive, f.Needs,
					earlier.Needs)
			}
		}
	}
}
