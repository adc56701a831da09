package limits

import (
	"encoding/binary"
	"io"
)

// HasWeights reports whether a file of size bytes begins as safetensors files do, with the length of a header that fits and its brace, or
// as GGUF files. The rest may be missing or damaged.
func HasWeights(r io.ReaderAt, size int64) bool {
	var head [9]byte
	const length = 8
	if n, _ := r.ReadAt(head[:], 0); n < len(head) {
		return false
	}
	return string(head[:4]) == "GGUF" || head[length] == '{' && binary.LittleEndian.Uint64(head[:]) <= uint64(max(size-length, 0))
}
