package gemm

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A tuning is what was measured of kernels on a kind of processor. It changes no result: the length of the
// blocks along K, which does, is in the kernel tables.
type tuning struct {
	part    string // that it is for, of internal/cpu; "" for all
	tiles   bool   // for products that a tile kernel (AMX) takes otherwise
	machine string // that measured it, and the work

	rows   map[string]rows     // by kernel
	blocks map[string]blocking // by kernel
}

// rows are the numbers of rows of A for which a kernel is the fastest: from least to most, or to packed if B is
// packed already.
// rowMajor is the least for which kernels of interleaved operands reorder the rows of others; 0: never.
type rows struct{ least, most, packed, rowMajor int }

// A blocking is how the loops around a tile kernel divide a product (see multiply).
type blocking struct {
	mc, nc int // rows of A and of B packed at a time
	fewNC  int // replaces nc if A has at most half as many rows; 0: never
}

// unlimited are the rows of tile kernels.
var unlimited = rows{most: math.MaxInt, packed: math.MaxInt}

// tunings are applied in their order; a later one replaces what an earlier one says of a kernel. Where a tile
// kernel follows, vector kernels without a row take no product from it.
var tunings = []tuning{
	{machine: "AMD EPYC 9004 (Zen 4), weights in DRAM; kernels of float32 with AVX-512: Intel Xeon with AMX; kernels of NEON: not measured, " +
		"by instructions per element", rows: map[string]rows{
		"vector-int8-mxfp4-interleaved-avx512": {most: 16},
		"vector-int8-nvfp4-interleaved-avx512": {most: 1024}, // no tiles of integers multiply MXINT8 by NVFP4
		"vector-mxfp4-interleaved-avx512":      {most: 16},
		"vector-nvfp4-interleaved-avx512":      {most: 16},
		"vector-int8-mxfp4-avx512":             {most: 12, packed: 4},
		"vector-int8-mxfp6-avx512":             {most: 16, packed: 4},
		"vector-int8-mxint8-avx512":            {most: 12, packed: 4},
		"vector-int8-nvfp4-avx512":             {most: 16, packed: 4},
		"vector-fp8-avx512":                    {most: 16, packed: 12},
		"vector-bf16-avx512":                   {most: 16, packed: 8},
		"vector-mxfp6-avx512":                  {most: 16, packed: 12},
		"vector-fp8-block128-avx512":           {most: 16, packed: 12},
		"vector-mxint8-avx512":                 {most: 16, packed: 12},
		"vector-q8_0-avx512":                   {most: 16, packed: 12},
		"vector-mxfp4-avx512":                  {most: 20, packed: 12},
		"vector-nvfp4-avx512":                  {most: 32, packed: 12},
		"vector-f32-f32-avx512":                {most: 12, packed: 2},
		"vector-f32-fp8-avx512":                {most: 16, packed: 8},
		"vector-f32-fp8-block128-avx2":         {most: 16, packed: 8},
		"vector-f32-mxint8-avx512":             {most: 12, packed: 8},
		"vector-f32-q8_0-avx512":               {most: 12, packed: 8},
		"vector-f32-mxfp6-avx512":              {most: 24, packed: 8},
		"vector-f32-mxfp4-avx512":              {most: 24, packed: 8},
		"vector-f32-nvfp4-avx512":              {most: 24, packed: 8},
		"vector-f32-f32-avx2":                  {most: 12, packed: 2},
		"vector-f32-bf16-avx2":                 {most: 16, packed: 8},
		"vector-f32-fp8-avx2":                  {most: 16, packed: 8},
		"vector-f32-mxint8-avx2":               {most: 16, packed: 8},
		"vector-f32-q8_0-avx2":                 {most: 16, packed: 8},
		"vector-f32-mxfp6-avx2":                {most: 24, packed: 8},
		"vector-f32-mxfp4-avx2":                {most: 24, packed: 8},
		"vector-f32-nvfp4-avx2":                {most: 24, packed: 8},
		"vector-mxfp4-interleaved-neonbf16":    {most: 6},
		"vector-nvfp4-interleaved-neonbf16":    {most: 6},
		"vector-f32-fp8-interleaved-neon":      {most: 6},
		"vector-f32-mxfp4-interleaved-neon":    {most: 6},
		"vector-f32-nvfp4-interleaved-neon":    {most: 6},
		"vector-f32-f32-neon":                  {most: 4, packed: 2},
		"vector-f32-bf16-neon":                 {most: 4, packed: 2},
		"vector-f32-fp8-neon":                  {most: 4, packed: 2},
		"vector-f32-fp8-block128-neon":         {most: 4, packed: 2},
		"vector-f32-mxint8-neon":               {most: 4, packed: 2},
		"vector-f32-q8_0-neon":                 {most: 4, packed: 2},
		"vector-f32-mxfp6-neon":                {most: 4, packed: 2},
		"vector-f32-mxfp4-neon":                {most: 4, packed: 2},
		"vector-f32-nvfp4-neon":                {most: 4, packed: 2},
		"int8-mx-neoni8mm":                     {least: 33, most: math.MaxInt, packed: math.MaxInt},
		"int8-nv-neoni8mm":                     {least: 33, most: math.MaxInt, packed: math.MaxInt},
		"vector-f32-reference":                 {most: 16},
	}, blocks: map[string]blocking{
		"int8-mx-avx512":         {mc: 128, nc: 2064},
		"int8-nv-avx512":         {mc: 128, nc: 2064},
		"bf16-amx":               {mc: 256, nc: 1408, fewNC: 256},
		"bf16-avx512":            {mc: 96, nc: bf16NC},
		"f32-avx512":             {mc: 192, nc: 1056},
		"f32-avx2":               {mc: 96, nc: 1032},
		"f32-neon":               {mc: 64, nc: 1024},
		"f32-reference":          {mc: 64, nc: 1024},
		"bf16-reference":         {mc: 96, nc: bf16NC},
		"int8-mx-neoni8mm":       {mc: 64, nc: 1024},
		"int8-nv-neoni8mm":       {mc: 64, nc: 1024},
		"bf16-neon":              {mc: 64, nc: 1024},
		"bf16-odd-reference":     {mc: 64, nc: 1024},
		"bf16-tile-reference":    {mc: 256, nc: 1408, fewNC: 256},
		"int8-mx-reference":      {mc: 128, nc: 2064},
		"int8-nv-reference":      {mc: 128, nc: 2064},
		"int8-mx-wide-reference": {mc: 64, nc: 1024},
		"int8-nv-wide-reference": {mc: 64, nc: 1024},
	}},
	{machine: "AMD EPYC 7003 (Zen 3) and 9004 (Zen 4): faster than packing for float32 tiles with 8 to 512 rows, on Zen 3 also MXFP4, " +
		"NVFP4 and MXINT8 with 2048 and 4096 (AVX2); more rows of others, packed operands, AVX-VNNI and arm64: not measured",
		rows: map[string]rows{
			"vector-f32-fp8-interleaved-avx2":        {most: 16},
			"vector-f32-mxfp4-interleaved-avx2":      {most: 16},
			"vector-f32-nvfp4-interleaved-avx2":      {most: 16},
			"vector-int8-mxfp4-interleaved-avx2":     {most: math.MaxInt, packed: 1024, rowMajor: 8},
			"vector-int8-nvfp4-interleaved-avx2":     {most: math.MaxInt, packed: 1024, rowMajor: 8},
			"vector-int8-mxint8-interleaved-avx2":    {most: math.MaxInt, packed: 1024, rowMajor: 8},
			"vector-int8-q8_0-interleaved-avx2":      {most: 1024},
			"vector-int8-mxfp4-interleaved-avxvnni":  {most: 1024, packed: 1024, rowMajor: 8},
			"vector-int8-nvfp4-interleaved-avxvnni":  {most: 1024, packed: 1024, rowMajor: 8},
			"vector-int8-mxint8-interleaved-avxvnni": {most: 1024, packed: 1024, rowMajor: 8},
			"vector-int8-q8_0-interleaved-avxvnni":   {most: 1024},
			"vector-int8-mxfp4-interleaved-neondot":  {most: 1024, packed: 1024, rowMajor: 8},
			"vector-int8-nvfp4-interleaved-neondot":  {most: 1024, packed: 1024, rowMajor: 8},
			"vector-int8-mxint8-interleaved-neondot": {most: 1024, packed: 1024, rowMajor: 8},
			"vector-int8-q8_0-interleaved-neondot":   {most: 1024},
		}},
	{machine: "Intel Xeon with AMX (Sapphire Rapids), weights in DRAM", tiles: true, rows: map[string]rows{
		"vector-int8-mxfp4-interleaved-avx512": {most: 16},
		"vector-int8-nvfp4-interleaved-avx512": {most: 16},
		"vector-mxfp4-interleaved-avx512":      {most: 16},
		"vector-nvfp4-interleaved-avx512":      {most: 16},
		"vector-int8-mxfp4-avx512":             {most: 12, packed: 12},
		"vector-int8-mxfp6-avx512":             {most: 14, packed: 10},
		"vector-int8-mxint8-avx512":            {most: 12, packed: 12},
		"vector-int8-nvfp4-avx512":             {most: 12, packed: 10},
		"vector-fp8-avx512":                    {most: 8, packed: 4},
		"vector-bf16-avx512":                   {most: 4, packed: 3},
		"vector-mxfp6-avx512":                  {most: 8, packed: 4},
		"vector-fp8-block128-avx512":           {most: 8, packed: 4},
		"vector-mxint8-avx512":                 {most: 8, packed: 4},
		"vector-q8_0-avx512":                   {most: 8, packed: 4},
		"vector-mxfp4-avx512":                  {most: 10, packed: 6},
		"vector-nvfp4-avx512":                  {most: 12, packed: 5},
		"vector-f32-fp8-avx512":                {most: 8, packed: 4},
		"vector-f32-mxint8-avx512":             {most: 6, packed: 4},
		"vector-f32-q8_0-avx512":               {most: 6, packed: 4},
		"vector-f32-mxfp6-avx512":              {most: 8, packed: 4},
		"vector-f32-mxfp4-avx512":              {most: 10, packed: 5},
		"vector-f32-nvfp4-avx512":              {most: 10, packed: 5},
		"int8-mx-avx512":                       {most: 20, packed: 0},
		"int8-nv-avx512":                       {most: 0, packed: 0},
	}},
	{part: "Intel with AVX512_BF16", machine: "Intel Xeon with AMX (Sapphire Rapids), decoding", rows: map[string]rows{
		"vector-f32-mxint8-avx2": {most: 12, packed: 8}, "vector-f32-q8_0-avx2": {most: 12, packed: 8},
		"vector-mxfp4-avx512": {least: 3, most: 20, packed: 12},
		"vector-nvfp4-avx512": {least: 3, most: 32, packed: 12},
	}},
	{part: "AMD Zen 4, Zen 5", machine: "AMD EPYC 9004 (Zen 4): wider tile kernels are faster from there on", rows: map[string]rows{
		"vector-f32-mxint8-avx2": {most: 12, packed: 8}, "vector-f32-q8_0-avx2": {most: 12, packed: 8},
	}},
	{part: "Intel with AVX-512", machine: "not measured: as on Zen 4", rows: map[string]rows{
		"vector-f32-mxint8-avx2": {most: 12, packed: 8}, "vector-f32-q8_0-avx2": {most: 12, packed: 8},
	}},
}

// bf16NC is the number of rows of B that kernels of BF16 panels pack at a time.
const bf16NC = 1056

// tune sets the rows and the blocking of the kernels of a table for a processor. It panics if a kernel has
// none.
func tune(table []*kernel, p cpu.Part) {
	for _, k := range table {
		k.rows, k.rowsBeforeTiles = rows{}, rows{}
		if k.vector == nil {
			k.rows, k.rowsBeforeTiles = unlimited, unlimited
		}
		for _, t := range tunings {
			if t.part != "" && t.part != p.Name {
				continue
			}
			if r, ok := t.rows[k.Name]; ok {
				if t.tiles {
					k.rowsBeforeTiles = r
				} else {
					k.rows = r
				}
			}
			if b, ok := t.blocks[k.Name]; ok {
				k.MC, k.NC, k.fewNC = b.mc, b.nc, b.fewNC
			}
		}
		if k.rows == (rows{}) || k.vector == nil && k.MC == 0 {
			panic(fmt.Sprintf("gemm: tuning.go has no row for the kernel %s", k.Name))
		}
	}
}
