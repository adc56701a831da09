//go:build !purego

package ggml

import "github.com/microscale-go/microscale/internal/cpu"

var kernels = []kernel{{cpu.AVX2, BlockMXFP4, pairMXFP4}}
