package verify

import (
	"context"
	"errors"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/safetensors"
)

// checkRecord compares the tensors of dst with the checksums in its record, where the
// run that wrote it left one.
func (r *Report) checkRecord(ctx context.Context, dst *checkpoint.Model) error {
	damaged, err := dst.Source.Damaged(ctx)
	if e, ok := errors.AsType[*safetensors.ContainerError](err); ok {
		r.Problems = append(r.Problems, checkpoint.Problem{Text: e.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range damaged {
		r.fault(name, "its bytes are not those that were written: the file was damaged or changed since")
	}
	return nil
}
