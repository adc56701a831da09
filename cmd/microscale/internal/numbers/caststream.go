package numbers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Stream converts little-endian patterns from r to codes on w.
func (c *Cast) Stream(w io.Writer, r io.Reader) error {
	const chunk = 1 << 14 // patterns
	in, out := c.From.StoredBits()/8, c.To.StoredBits()
	out = max(out, 8) / 8
	src, dst := make([]byte, chunk*in), make([]byte, chunk*out)
	var done uint64
	for {
		n, err := io.ReadFull(r, src)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("read standard input after %d patterns: %w", done, err)
		}
		for i := range n / in {
			v := fromBits(loadPattern(src[i*in:], in), c.From)
			storePattern(dst[i*out:], c.code(v, done+uint64(i)), out)
		}
		if _, err := w.Write(dst[:n/in*out]); err != nil {
			return fmt.Errorf("write standard output: %w", err)
		}
		done += uint64(n / in)
		if n%in != 0 {
			return fmt.Errorf("standard input ends within a pattern: got %d bytes, want a multiple of %d, the size of %s; all complete patterns "+
				"were converted", done*uint64(in)+uint64(n%in), in, c.From)
		}
		if last {
			return nil
		}
	}
}

func loadPattern(b []byte, size int) uint32 {
	if size == 2 {
		return uint32(binary.LittleEndian.Uint16(b))
	}
	return binary.LittleEndian.Uint32(b)
}

func storePattern(b []byte, code uint32, size int) {
	switch size {
	case 1:
		b[0] = byte(code)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(code))
	default:
		binary.LittleEndian.PutUint32(b, code)
	}
}
