//go:build (amd64 || arm64) && !purego

package gemm

import (
	"math"
	"unsafe"
)

// The maximum lanes of a panel, and the positions of which packing functions in assembly take multiples.
const (
	packLanes = 16
	packBlock = 32
)

// inBlocks reports whether kc and the length of the chunks are multiples of packBlock.
func (s *side) inBlocks(kc int) bool {
	chunks, steps := s.geometry(kc)
	return kc%packBlock == 0 && (chunks == 1 || steps*s.kernel.panel.perStep()%packBlock == 0)
}

// part returns chunk c of a panel over kc positions and the number of its positions. It clears
// the padding of the chunk.
func (s *side) part(panel []byte, c, kc int) (chunk []byte, positions int) {
	chunks, steps := s.geometry(kc)
	step, per, size := 4*s.kernel.Lanes, s.kernel.panel.perStep(), len(panel)/chunks
	chunk, positions = panel[c*size:(c+1)*size], min(steps*per, kc-c*steps*per)
	clear(chunk[ceilDiv(positions, per)*step : steps*step])
	return chunk, positions
}

// packDwords packs elements that the panel stores unchanged, with one of the functions below.
func packDwords(transpose func(to, from unsafe.Pointer, row, lanes, dwords int)) packFunc {
	return func(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
		lanes, n, size := s.kernel.Lanes, s.t.RowBytes(), s.t.Format.Element.StoredBits()/8
		if !s.inBlocks(kc) {
			return false
		}
		chunks, steps := s.geometry(kc)
		codes := s.t.Codes[l0*n+k0*size:]
		if rows := s.t.StoredRows() - l0; rows < lanes {
			row := kc * size
			grow(&w.codes, lanes*row)
			for i := range rows {
				copy(w.codes[i*row:(i+1)*row], codes[i*n:])
			}
			clear(w.codes[rows*row : lanes*row])
			codes, n = w.codes, row
		}
		for c := range chunks {
			chunk, positions := s.part(dst, c, kc)
			transpose(unsafe.Pointer(&chunk[0]), unsafe.Pointer(&codes[c*steps*4]), n, lanes, positions*size/4)
		}
		s.putScales(dst, l0, k0, chunks, steps)
		return true
	}
}

// dwords8 writes that many dwords of each of 8 lanes, whose rows are row bytes apart, to a chunk.
func dwords8(to, from unsafe.Pointer, row, lanes, dwords int) {
	transposeDwords8(to, from, row, 4*lanes, dwords/8)
}

// putScales writes the scales of all chunks of the panel.
func (s *side) putScales(dst []byte, l0, k0, chunks, steps int) {
	lanes, chunkWords, span := s.kernel.Lanes, (steps+1)*s.kernel.Lanes, steps*s.kernel.panel.perStep()
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(dst))), chunks*chunkWords)[steps*lanes:]
	if s.scales != perChunk || s.t.Scales32 == nil {
		for c := range chunks {
			for i := range lanes {
				words[c*chunkWords+i] = math.Float32bits(1)
				if s.scales != folded {
					words[c*chunkWords+i] = s.scaleWord(l0+i, k0+c*span)
				}
			}
		}
		return
	}
	_, cols := s.t.ScaleShape()
	last, block := s.t.StoredRows()-1, s.t.Format.Block
	var rows [packLanes][]float32
	for i := range lanes {
		rows[i] = s.t.Scales32 // a block spans all rows
		if block.Rows > 0 {
			rows[i] = rows[i][min(l0+i, last)/block.Rows*cols:]
		}
	}
	for c := range chunks {
		col := 0
		if block.Cols > 0 {
			col = (k0 + c*span) / block.Cols
		}
		chunk := words[c*chunkWords:][:lanes]
		for i := range chunk {
			chunk[i] = math.Float32bits(rows[i][col])
		}
	}
}
