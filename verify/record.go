package verify

import (
	"context"
	"errors"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/safetensors"
)

// checkRecord compares the bytes of dst with the checksums that the run that wrote them left
// in its files. Files without checksums are not read.
func (r *Report) checkRecord(ctx context.Context, dst *checkpoint.Model, p *progress) error {
	const stage = "comparing checksums"
	damaged, err := dst.Source.Damaged(ctx, func(n int64) { p.add(stage, n) })
	if err == nil {
		p.add(stage, p.Total-p.Done) // files without checksums
	}
	if e, ok := errors.AsType[*safetensors.ContainerError](err); ok {
		r.Problems = append(r.Problems, Problem{Text: e.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range damaged {
		r.fault(name, "its bytes do not match their checksum: the file was damaged or changed after it was written")
	}
	return nil
}
