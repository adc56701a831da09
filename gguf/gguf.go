// Package gguf reads and writes the GGUF container of llama.cpp: metadata,
// names, types, shapes and bytes of tensors, nothing about what they mean.
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
// Integers and elements are little-endian. Every tensor begins at a multiple of
// the alignment, 32 unless the key general.alignment says otherwise, right after
// the one before it; so does the data. Here shapes have the slowest dimension
// first, as everywhere in this module.
//
// The format is described in docs/gguf.md of github.com/ggml-org/ggml; the checks
// follow its reader (src/gguf.cpp). Version 2 differs from 3 in nothing that
// concerns a little-endian file and is read too.
//
// A [File] reads with positioned reads. A [Layout] computes the bytes of a header
// and the place of every tensor before any data exists; they are filled in by the
// writer of package safetensors, in any order and from several goroutines. Bad files give a
// [*ContainerError]: one line with the file, the tensor or key, the byte offset,
// what is wrong and what to do.
package gguf

// Magic is how a file begins.
const Magic = "GGUF"

// Version is the version that this package writes.
const Version = 3

// Limits of ggml's reader.
const (
	maxName       = 63      // bytes of a tensor's name: GGML_MAX_NAME without the NUL at its end
	maxDimensions = 4       // GGML_MAX_DIMS
	maxKey        = 1 << 16 // bytes of a key, by the description of the format
)

// AlignmentKey is the key of the alignment, a uint32.
const AlignmentKey = "general.alignment"

const defaultAlignment = 32
