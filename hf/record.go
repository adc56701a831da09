package hf

import "context"

// Damaged reads all tensors of the shards that have a record of what was written
// (safetensors.Record) and returns those whose bytes are others now.
func (c *Checkpoint) Damaged(ctx context.Context) (damaged []Tensor, err error) {
	for _, s := range c.shards {
		record, ok, err := s.File.Record()
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
			sum, err := s.File.ChecksumOf(info)
			if err != nil {
				return nil, err
			}
			if sum != record.Tensors[i] {
				damaged = append(damaged, Tensor{info, s})
			}
		}
	}
	return damaged, nil
}
