package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/microscale-go/microscale/internal/limits"
)

// Suffix ends the names of safetensors files.
const Suffix = ".safetensors"

// IndexName is the name of the index of a sharded checkpoint, in the folder of its shards.
const IndexName = "model" + Suffix + ".index.json"

// maxIndexDepth bounds how deep values that the index reader skips may nest.
const maxIndexDepth = 64

// An Index maps the tensors of a sharded checkpoint to their files:
//
//	{
//	  "metadata": {
//	    "total_size": 141107412992
//	  },
//	  "weight_map": {
//	    "lm_head.weight": "model-00030-of-00030.safetensors", …
//	  }
//	}
type Index struct {
	// TotalSize is the number of bytes of all tensors, without headers. It is not reliable: some
	// writers count the files instead, and some omit it (0).
	TotalSize int64
	// WeightMap maps each tensor's name to the name of its file.
	WeightMap map[string]string
}

// ReadIndex reads and checks an index. It rejects duplicate keys, and file names that could lead
// out of the directory of the index. It ignores keys other than metadata.total_size and
// weight_map. The error for an invalid index is a [*ContainerError].
func ReadIndex(path string) (*Index, error) {
	data, err := limits.ReadFile(path, maxHeaderSize)
	if _, ok := errors.AsType[limits.TooLarge](err); ok {
		err = &ContainerError{Path: path, Offset: maxHeaderSize, Problem: tooLargeIndex, Fix: fixIndex}
	} else if errors.Is(err, limits.ErrNotRegular) {
		err = notRegular(path)
	}
	if err != nil {
		return nil, err
	}
	x, invalid := parseIndex(data)
	if invalid != nil {
		invalid.Path = path
		return nil, invalid
	}
	return x, nil
}

var tooLargeIndex = fmt.Sprintf("the index has more than %d bytes", maxHeaderSize)

func parseIndex(data []byte) (*Index, *ContainerError) {
	s := &scanner{data: data, fix: fixIndex}
	if len(data) > maxHeaderSize {
		return nil, s.fail(maxHeaderSize, "%s", tooLargeIndex)
	}
	if err := s.checkUTF8(); err != nil {
		return nil, err
	}
	x := &Index{}
	err := s.object(func(key string, _ int) (err *ContainerError) {
		switch key {
		case "metadata":
			x.TotalSize, err = scanTotalSize(s)
		case "weight_map":
			x.WeightMap, err = scanWeightMap(s)
		default:
			err = s.skip(maxIndexDepth)
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && x.WeightMap == nil {
		err = s.fail(0, "weight_map is missing")
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// scanTotalSize reads the index's metadata. It accepts any number that is not negative, since
// nothing depends on total_size.
func scanTotalSize(s *scanner) (total int64, err *ContainerError) {
	if s.peek() != '{' {
		return 0, s.fail(s.pos, "metadata is not an object")
	}
	err = s.object(func(key string, _ int) *ContainerError {
		if key != "total_size" {
			return s.skip(maxIndexDepth)
		}
		s.peek()
		at := s.pos
		text, err := s.number()
		if err != nil {
			return s.fail(at, "total_size is not a number (found %s)", s.found())
		}
		// Out of range gives an infinity, which is capped like any large number.
		v, _ := strconv.ParseFloat(text, 64)
		if v < 0 {
			return s.fail(at, "total_size is negative")
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			total = n
		} else if v >= math.MaxInt64 {
			total = math.MaxInt64
		} else {
			total = int64(v)
		}
		return nil
	})
	return total, err
}

func scanWeightMap(s *scanner) (map[string]string, *ContainerError) {
	files := make(map[string]string)
	if s.peek() != '{' {
		return nil, s.fail(s.pos, "weight_map is not an object")
	}
	err := s.object(func(tensor string, at int) (err *ContainerError) {
		if s.peek() != '"' {
			err = s.fail(s.pos, "weight_map: the file name is not a string")
		} else if files[tensor], err = s.str(); err == nil {
			if problem := checkWeight(tensor, files[tensor]); problem != "" {
				err = s.fail(at, "weight_map: %s", problem)
			}
		}
		if err != nil {
			err.Tensor = tensor
		}
		return err
	})
	return files, err
}

// checkWeight returns the problem with an entry of the weight map, or "".
func checkWeight(tensor, file string) string {
	if problem := checkName(tensor); problem != "" {
		return problem
	}
	switch {
	case file == "":
		return "the file name is empty"
	case strings.ContainsRune(file, 0):
		return "the file name contains a NUL character"
	case file == "." || strings.Contains(file, "..") || strings.ContainsAny(file, `/\:`):
		return fmt.Sprintf("the file name %s could lead out of the directory of the index", limits.Quote(file))
	}
	return ""
}

// Shards returns the file names of the weight map, sorted, without duplicates.
func (x *Index) Shards() []string {
	return slices.Compact(slices.Sorted(maps.Values(x.WeightMap)))
}

// Marshal returns the index as JSON, with sorted keys, an indent of two and a
// newline at the end. If [ReadIndex] would reject the index, the error is a [*ContainerError].
func (x *Index) Marshal() ([]byte, error) {
	if x.TotalSize < 0 {
		return nil, &ContainerError{Offset: -1, Problem: "total_size is negative", Fix: "sum the bytes of the tensors"}
	}
	for _, tensor := range slices.Sorted(maps.Keys(x.WeightMap)) {
		file := x.WeightMap[tensor]
		problem := checkWeight(tensor, file)
		if problem == "" && !(utf8.ValidString(tensor) && utf8.ValidString(file)) {
			problem = "a name is not valid UTF-8"
		}
		if problem != "" {
			return nil, &ContainerError{Tensor: tensor, Offset: -1, Problem: "weight_map: " + problem, Fix: fixTensor}
		}
	}
	weights := x.WeightMap
	if weights == nil {
		weights = map[string]string{}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{
		"metadata":   map[string]int64{"total_size": x.TotalSize},
		"weight_map": weights,
	})
	if err != nil {
		return nil, err
	}
	if out.Len() > maxHeaderSize {
		return nil, &ContainerError{Offset: -1, Problem: tooLargeIndex, Fix: "write fewer tensors"}
	}
	return out.Bytes(), nil
}

// ShardName returns the name of shard i of n, counted from 1:
// "model-00002-of-00003.safetensors", or "model.safetensors" if n is 1. It panics if i is not in
// [1, n].
func ShardName(i, n int) string {
	if i < 1 || i > n {
		panic(fmt.Sprintf("safetensors: no shard %d of %d", i, n))
	}
	if n == 1 {
		return "model" + Suffix
	}
	return fmt.Sprintf("model-%05d-of-%05d%s", i, n, Suffix)
}
