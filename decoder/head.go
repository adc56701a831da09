package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
)

// WithHead returns the model with the weights of its head quantized by q, also those that are
// quantized already. It shares everything else with m; a tied embedding stays as it is. inputs is
// that of the head's inputs, as in LoadOptions. The result cannot be trained.
func (m *Model) WithHead(q quant.Quantizer, inputs Inputs) (*Model, error) {
	c := *m
	f, err := m.head.quantize(&m.Inference, q, nil)
	if err != nil {
		return nil, fmt.Errorf("quantize the head: %w", err)
	}
	c.head.linear, c.head.frozen = nil, f
	if inputs.Format.Element != nil {
		err = c.head.optimize(inputs, m.Inference.Threads)
	}
	return &c, err
}
