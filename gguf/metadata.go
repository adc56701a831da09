package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Pair is one entry of the metadata. The type of its value is one of
//
//	uint8 int8 uint16 int16 uint32 int32 uint64 int64 float32 float64 bool string
//
// or a slice of one of them. (The format allows arrays of arrays; ggml's reader
// does not.)
type Pair struct {
	Key   string
	Value any
}

// Numbers of the types of values (enum gguf_type).
const (
	typeUint8 uint32 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// valueBytes lists the size of a value of each type; for strings, that of their length prefix.
var valueBytes = [...]int64{typeUint8: 1, typeInt8: 1, typeUint16: 2, typeInt16: 2, typeUint32: 4, typeInt32: 4,
	typeFloat32: 4, typeBool: 1, typeString: 8, typeArray: 12, typeUint64: 8, typeInt64: 8, typeFloat64: 8}

// appendPair appends an entry. It returns an error for a value of another type.
func appendPair(b []byte, p Pair) ([]byte, error) {
	b = appendString(b, p.Key)
	if t, ok := typeOf(p.Value); ok {
		return appendValue(binary.LittleEndian.AppendUint32(b, t), p.Value), nil
	}
	begin := binary.LittleEndian.AppendUint32(b, typeArray)
	switch v := p.Value.(type) {
	case []uint8:
		return appendArray(begin, v), nil
	case []int8:
		return appendArray(begin, v), nil
	case []uint16:
		return appendArray(begin, v), nil
	case []int16:
		return appendArray(begin, v), nil
	case []uint32:
		return appendArray(begin, v), nil
	case []int32:
		return appendArray(begin, v), nil
	case []uint64:
		return appendArray(begin, v), nil
	case []int64:
		return appendArray(begin, v), nil
	case []float32:
		return appendArray(begin, v), nil
	case []float64:
		return appendArray(begin, v), nil
	case []bool:
		return appendArray(begin, v), nil
	case []string:
		return appendArray(begin, v), nil
	}
	return nil, fmt.Errorf("a value of type %T has no place in metadata", p.Value)
}

func appendArray[T any](b []byte, list []T) []byte {
	var zero T
	t, _ := typeOf(zero)
	b = binary.LittleEndian.AppendUint32(b, t)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(list)))
	for _, v := range list {
		b = appendValue(b, v)
	}
	return b
}

// typeOf returns the number of the type of a scalar value.
func typeOf(value any) (t uint32, ok bool) {
	switch value.(type) {
	case uint8:
		return typeUint8, true
	case int8:
		return typeInt8, true
	case uint16:
		return typeUint16, true
	case int16:
		return typeInt16, true
	case uint32:
		return typeUint32, true
	case int32:
		return typeInt32, true
	case float32:
		return typeFloat32, true
	case bool:
		return typeBool, true
	case string:
		return typeString, true
	case uint64:
		return typeUint64, true
	case int64:
		return typeInt64, true
	case float64:
		return typeFloat64, true
	}
	return 0, false
}

// appendValue appends a scalar value.
func appendValue(b []byte, value any) []byte {
	if s, ok := value.(string); ok {
		return appendString(b, s)
	}
	b, err := binary.Append(b, binary.LittleEndian, value)
	if err != nil {
		panic(err) // typeOf knows no other types
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// value reads a value of a type.
func (p *parser) value(t uint32) any {
	switch t {
	case typeUint8:
		return p.bytes(1)[0]
	case typeInt8:
		return int8(p.bytes(1)[0])
	case typeUint16:
		return binary.LittleEndian.Uint16(p.bytes(2))
	case typeInt16:
		return int16(binary.LittleEndian.Uint16(p.bytes(2)))
	case typeUint32:
		return p.uint32()
	case typeInt32:
		return int32(p.uint32())
	case typeFloat32:
		return math.Float32frombits(p.uint32())
	case typeBool:
		return p.bool()
	case typeString:
		return p.string()
	case typeUint64:
		return p.uint64()
	case typeInt64:
		return int64(p.uint64())
	case typeFloat64:
		return math.Float64frombits(p.uint64())
	case typeArray:
		return p.array()
	}
	p.fail(fmt.Sprintf("values of type %d are not known", t), fixDamaged)
	return nil
}

// bool reads a bool. It rejects bytes other than 0 and 1, which are undefined behavior in
// ggml's reader.
func (p *parser) bool() bool {
	b := p.bytes(1)[0]
	if b > 1 {
		p.fail(fmt.Sprintf("a bool is %d", b), fixDamaged)
	}
	return b == 1
}

// array reads an array: the type and the number of its elements, then the elements.
func (p *parser) array() any {
	t, n := p.uint32(), p.uint64()
	if p.err != nil {
		return nil
	}
	switch {
	case t == typeArray:
		p.fail("an array of arrays, which llama.cpp does not read", fixDamaged)
	case int(t) >= len(valueBytes):
		p.fail(fmt.Sprintf("an array of values of type %d, which is not known", t), fixDamaged)
	case n > uint64(p.left())/uint64(valueBytes[t]):
		p.fail(fmt.Sprintf("an array of %d values ends after the end of the file", n), fixTruncated)
	}
	if p.err != nil {
		return nil
	}
	switch t {
	case typeUint8:
		return elements[uint8](p, t, n)
	case typeInt8:
		return elements[int8](p, t, n)
	case typeUint16:
		return elements[uint16](p, t, n)
	case typeInt16:
		return elements[int16](p, t, n)
	case typeUint32:
		return elements[uint32](p, t, n)
	case typeInt32:
		return elements[int32](p, t, n)
	case typeFloat32:
		return elements[float32](p, t, n)
	case typeBool:
		return elements[bool](p, t, n)
	case typeString:
		return elements[string](p, t, n)
	case typeUint64:
		return elements[uint64](p, t, n)
	case typeInt64:
		return elements[int64](p, t, n)
	}
	return elements[float64](p, t, n)
}

// elements reads the n values of an array. The caller checks n against the rest of the file.
// The slice grows as values arrive, because the file may be corrupt.
func elements[T any](p *parser, t uint32, n uint64) []T {
	list := make([]T, 0, min(n, 1<<16))
	for range n {
		v, _ := p.value(t).(T)
		if p.err != nil {
			return nil
		}
		list = append(list, v)
	}
	return list
}
