package measure

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// state is the serialized form of an Accumulator.
type state struct {
	Block                                int64
	Elements, NonFiniteWant, NonFinite   int64
	Saturated, Flushed, Exponent, Blocks int64
	Ratio                                float64
	Totals                               [4]float64
	Magnitude                            [8]float64
	Worst                                [16]float32
}

// MarshalBinary returns the state of a. An accumulator that UnmarshalBinary restores from it
// gives bit-identical results.
func (a *Accumulator) MarshalBinary() ([]byte, error) {
	l := &a.lanes
	var b bytes.Buffer
	err := binary.Write(&b, binary.LittleEndian, state{
		int64(a.block), a.elements, a.nonFiniteWant, a.nonFinite, l.saturated, l.flushed, a.exponent, a.blocks,
		a.ratio, l.totals, l.magnitude, l.worst,
	})
	return b.Bytes(), err
}

// UnmarshalBinary sets a to the state that MarshalBinary returned. On error, a is unchanged.
func (a *Accumulator) UnmarshalBinary(data []byte) error {
	var s state
	if n, err := binary.Decode(data, binary.LittleEndian, &s); err != nil || n != len(data) || s.Block <= 0 {
		return fmt.Errorf("measure: invalid state of an accumulator: got %d bytes", len(data))
	}
	*a = Accumulator{
		block: int(s.Block), elements: s.Elements, nonFiniteWant: s.NonFiniteWant, nonFinite: s.NonFinite,
		ratio: s.Ratio, exponent: s.Exponent, blocks: s.Blocks,
		lanes: lanes{s.Totals, s.Magnitude, s.Worst, s.Saturated, s.Flushed},
	}
	return nil
}
