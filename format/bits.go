package format

// Codes of less than 8 bits are stored without gaps, the first code in the lowest bits. PyTorch,
// PTX, compressed-tensors and Quark use the same order:
//
//	4 bits   byte 0: c1c1c1c1 c0c0c0c0
//	6 bits   byte 0: c1c1 c0c0c0c0c0c0
//	         byte 1: c2c2c2c2 c1c1c1c1
//	         byte 2: c3c3c3c3c3c3 c2c2
//
// Formats of 7 and 8 bits use one byte for each code.

// StoredBits returns the bits of a stored code: 4, 6, 8, 16 or 32.
func (s *Scalar) StoredBits() int {
	if b := s.Bits(); b != 7 {
		return b
	}
	return 8
}

// StoredBytes returns the bytes of n stored codes. ok is false if they do not fill whole bytes.
func (s *Scalar) StoredBytes(n int) (bytes int, ok bool) {
	bits := n * s.StoredBits()
	return bits / 8, bits%8 == 0
}

// Join stores codes, given one per byte, without gaps in dst. The format must have at most 8
// bits, the codes must fill whole bytes, and dst must have StoredBytes(len(codes)) bytes.
func (s *Scalar) Join(dst, codes []byte) {
	switch s.StoredBits() {
	case 4:
		joinNibbles(dst, codes)
	case 6:
		joinSixes(dst, codes)
	default:
		copy(dst, codes)
	}
}

// Split is the inverse of Join: it reads len(codes) codes from src, one into each byte.
func (s *Scalar) Split(codes, src []byte) {
	switch s.StoredBits() {
	case 4:
		splitNibbles(codes, src)
	case 6:
		splitSixes(codes, src)
	default:
		copy(codes, src[:len(codes)])
	}
}

func joinNibbles(dst, codes []byte) {
	dst = dst[:len(codes)/2]
	for i := range dst {
		dst[i] = codes[2*i]&0xf | codes[2*i+1]<<4
	}
}

func splitNibbles(codes, src []byte) {
	for i, b := range src[:len(codes)/2] {
		codes[2*i], codes[2*i+1] = b&0xf, b>>4
	}
}

func joinSixes(dst, codes []byte) {
	for i, j := 0, 0; i < len(codes); i, j = i+4, j+3 {
		w := uint32(codes[i]&0x3f) | uint32(codes[i+1]&0x3f)<<6 | uint32(codes[i+2]&0x3f)<<12 | uint32(codes[i+3]&0x3f)<<18
		dst[j], dst[j+1], dst[j+2] = byte(w), byte(w>>8), byte(w>>16)
	}
}

func splitSixes(codes, src []byte) {
	for i, j := 0, 0; i < len(codes); i, j = i+4, j+3 {
		w := uint32(src[j]) | uint32(src[j+1])<<8 | uint32(src[j+2])<<16
		codes[i], codes[i+1], codes[i+2], codes[i+3] = byte(w&0x3f), byte(w>>6&0x3f), byte(w>>12&0x3f), byte(w>>18&0x3f)
	}
}
