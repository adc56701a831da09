package input

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// ParseIDs parses token ids: decimal numbers separated by white space or, with raw,
// little-endian 32-bit integers.
func ParseIDs(data []byte, raw bool) ([]uint32, error) {
	var ids []uint32
	if raw {
		if len(data)%4 != 0 {
			return nil, fmt.Errorf("tokenize: got %d bytes, want ids of 4 bytes", len(data))
		}
		for ; len(data) > 0; data = data[4:] {
			ids = append(ids, binary.LittleEndian.Uint32(data))
		}
		return ids, nil
	}
	for field := range strings.FieldsSeq(string(data)) {
		id, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %.20q is not a token id: want decimal numbers", field)
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}
