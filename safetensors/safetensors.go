// Package safetensors reads and writes the safetensors container: names,
// dtypes, shapes and bytes of tensors, nothing about what they mean.
//
//	byte 0      8             8+N                                   end of file
//	     ├──────┼─────────────┼──────────────┬─────────┬───────────────┤
//	     │ N    │ header      │ tensor 0     │ tensor 1│ …             │
//	     │ u64  │ N bytes     │ [begin, end) │         │               │
//	     └──────┴─────────────┴──────────────┴─────────┴───────────────┘
//	                          0   offsets count from here (data buffer)
//
//	header = {"__metadata__":{"format":"pt"},
//	          "lm_head.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}, …}
//
// Integers and elements are little-endian, tensors are row-major without
// strides. The data buffer has no holes and no overlaps: sorted by offset, each
// tensor starts where the one before ended, the first at 0, and the last ends
// with the file. N is at most 100 000 000. The format is described in the
// README of github.com/huggingface/safetensors ("Format"); the checks follow
// its reader (safetensors/src/tensor.rs) and add those its README asks for,
// such as rejecting duplicate keys.
//
// A [File] reads with positioned reads and maps nothing, so a file that shrinks
// while it is being read is an error and not a signal. A [Layout] computes the
// bytes of a header and the place of every tensor before any data exists, and a
// [Writer] fills them in, in any order and from several goroutines. An [Index]
// maps the tensors of a sharded checkpoint to its files.
//
// Bad files give a [*ContainerError]: one line with the file, the tensor, the byte
// offset, what is wrong and what to do.
package safetensors
