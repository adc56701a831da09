//go:build !purego

package ggml

var kernels = []kernel{{pairMXFP4Needs, BlockMXFP4, pairMXFP4}}
