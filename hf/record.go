package hf

import (
	"context"

	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Damaged reads all tensors of the shards that have recorded checksums, in the metadata that this
// module writes, and returns the names of those whose checksum differs. It calls progress with the
// bytes of each tensor that it read, and returns the error of ctx once that is done.
func (c *Checkpoint) Damaged(ctx context.Context, progress func(bytes int64)) (names []string, err error) {
	if c.damaged != nil {
		return c.damaged(ctx, progress)
	}
	for _, s := range c.shards {
		record, ok, err := checksum.RecordOf(s.File)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		for i, info := range s.File.Tensors() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sum, err := checksum.OfTensor(s.File, info)
			if err != nil {
				return nil, err
			}
			if sum != record.Tensors[i] {
				names = append(names, info.Name)
			}
			progress(info.Bytes())
		}
	}
	return names, nil
}
