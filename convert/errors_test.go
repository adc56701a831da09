package convert

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestCauses: errors.Is finds the cause of each error. The text of each error is one line
// without names of flags.
func TestCauses(t *testing.T) {
	ctx := context.Background()
	src := writeModel(t, tiledModel(), madeConfig)
	mxfp8 := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}}
	run := func(dst string, o RunOptions) error {
		_, err := planFor(t, src, "mxfp8").Run(ctx, dst, o)
		return err
	}
	for _, tc := range []struct {
		name  string
		cause error
		err   func(dst string) error
	}{
		{"existing destination", fs.ErrExist, func(dst string) error {
			writeText(t, dst, "mine")
			return run(dst, RunOptions{})
		}},
		{"existing destination that is not the result", fs.ErrExist, func(dst string) error {
			if err := os.Mkdir(dst, 0o777); err != nil {
				return err
			}
			return run(dst, RunOptions{Resume: true})
		}},
		{"quantized source", ErrQuantized, func(dst string) error {
			if err := run(dst, RunOptions{}); err != nil {
				return err
			}
			_, err := PlanQuantize(t.Context(), openModel(t, dst).Source, mxfp8)
			return err
		}},
		{"NaN", ErrNonFinite, func(dst string) error {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			x := tensor.New(32, 32)
			x.Data[5] = float32(math.NaN())
			writeValues(t, path, "l.weight", x)
			plan, err := PlanQuantize(t.Context(), openModel(t, path).Source, mxfp8)
			if err == nil {
				_, err = plan.Run(ctx, dst+".safetensors", RunOptions{})
			}
			return err
		}},
		{"another plan", ErrChanged, func(dst string) error {
			interrupted(t, planFor(t, src, "nvfp4"), dst, 9)
			return run(dst, RunOptions{Resume: true})
		}},
		{"no parts", ErrUnfinished, func(dst string) error {
			_, err := Merge(ctx, dst, RunOptions{})
			return err
		}},
		{"missing part", ErrUnfinished, func(dst string) error {
			work(t, src, "mxfp8", dst, 0, 2)
			_, err := Merge(ctx, dst, RunOptions{})
			return err
		}},
		{"damaged part", ErrDamaged, func(dst string) error {
			for i := range 2 {
				work(t, src, "mxfp8", dst, i, 2)
			}
			found, err := filepath.Glob(filepath.Join(partDir(dst, 0, 2), "*.safetensors"))
			if err != nil || len(found) == 0 {
				t.Fatalf("%v, %v", found, err)
			}
			if err := flip(found[0], 1); err != nil {
				return err
			}
			_, err = Merge(ctx, dst, RunOptions{})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.err(filepath.Join(t.TempDir(), "dst"))
			if !errors.Is(err, tc.cause) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "--") {
				t.Errorf("got %v, want the cause %v, in one line without flags", err, tc.cause)
			}
		})
	}
}
