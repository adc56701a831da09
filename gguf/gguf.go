// Package gguf reads and lays out files of llama.cpp's container GGUF: metadata, and names, types,
// shapes and bytes of tensors. It does not interpret them.
//
//	byte 0   4        8          16     24
//	     ├───┼────────┼──────────┼──────┼──────────┬──────────────┬─────┬──────────┬─────┬──────────┬─────┐
//	     │GG…│ 3      │ tensors  │ keys │ metadata │ tensor infos │ pad │ tensor 0 │ pad │ tensor 1 │ …   │
//	     │u32│ u32    │ i64      │ i64  │          │              │     │          │     │          │     │
//	     └───┴────────┴──────────┴──────┴──────────┴──────────────┴─────┴──────────┴─────┴──────────┴─────┘
//	                                                                    0  offsets count from here
//
//	metadata     key (string), type (u32), value; a string is a length (u64) and its bytes,
//	             an array is the type of its elements (u32), their number (u64), and they
//	tensor info  name (string), dimensions (u32), each of them (i64, the fastest first),
//	             type (u32), offset (u64)
//
// Integers and elements are little-endian. The data and every tensor begin at a multiple of the
// alignment: 32, or the value of the key general.alignment. Tensors are contiguous except for
// this padding. Shapes have the slowest dimension first here, as everywhere in this module.
//
// The format is described in docs/gguf.md of github.com/ggml-org/ggml; the checks
// follow its reader (src/gguf.cpp). Version 2 differs from 3 in nothing that
// concerns a little-endian file and is read too.
//
// A [File] reads with positioned reads. A [Layout] computes the bytes of the header and the
// offset of every tensor before any data exists, so that a program can write them in any order
// and from several goroutines. The error for an invalid file is a [*safetensors.ContainerError]: one line
// with the file, the tensor or key, the byte offset, the problem and its remedy.
package gguf

// magicText is the beginning of every file.
const magicText = "GGUF"

// currentVersion is the version of the files that this package lays out.
const currentVersion = 3

// Limits of ggml's reader.
const (
	maxName       = 63      // bytes of a tensor's name: GGML_MAX_NAME without the NUL at its end
	maxDimensions = 4       // GGML_MAX_DIMS
	maxKey        = 1 << 16 // bytes of a key, by the description of the format
)

// alignmentKey is the key of the alignment, a uint32.
const alignmentKey = "general.alignment"

const defaultAlignment = 32
