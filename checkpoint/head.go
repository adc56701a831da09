package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/family"
)

// DifferentHead returns the output head that the files hold although the configuration ties it to the embedding
// (tie_word_embeddings), if its values are others; nil if there is none. Heads that are quantized, as clients that
// build them so expect, are not compared. It reads both weights.
func (m *Model) DifferentHead(ctx context.Context) (*Weight, error) {
	head, ok := m.Lookup(m.Family().Stored("lm_head.weight"))
	table, has := m.Lookup(m.Family().Stored("model.embed_tokens.weight"))
	switch {
	case !ok || !has || !family.Tied(m.Source.Config), head.Quantized() || table.Quantized(), !head.Dense() || !table.Dense():
		return nil, nil
	case !slices.Equal(head.Shape, table.Shape):
		return head, nil
	}
	for t := range head.Tiling().Tiles(0) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := head.ReadTile(t)
		if err != nil {
			return nil, err
		}
		b, err := table.ReadTile(t)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(a.Data, b.Data) {
			return head, nil
		}
	}
	return nil, nil
}

// HeadNote describes DifferentHead; "" if there is none. Sources: tie_weights in modeling_utils.py of transformers 5.24; the
// loaders of vLLM 0.32, SGLang 0.5.23 and mlx-lm 0.32.2, which skip a tied head.
func (m *Model) HeadNote(ctx context.Context) (string, error) {
	head, err := m.DifferentHead(ctx)
	if head == nil {
		return "", err
	}
	return fmt.Sprintf("%s differs from the embedding, to which config.json ties it: transformers 5 uses it, and vLLM, SGLang and mlx-lm "+
		"use the embedding: set tie_word_embeddings to false if it is right, else remove it", head.Name), err
}
