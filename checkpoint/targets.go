package checkpoint

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// targetPatterns returns entries by which clients find the modules of each of several lists: regular expressions, and
// names of modules that none tells apart. An entry matches no module of another list, because clients disagree which of
// two that match applies. It matches an unquantized module only if that has another prefix than those of its list,
// such as a vision tower; the ignore list names it.
//
// An entry begins at the list of layers, after any other words, because clients have other prefixes than the files
// (modulePatterns):
//
//	re:(.*[.])?layers[.]\d+[.]self_attn[.](k_proj|o_proj|q_proj|v_proj)$    in every layer
//	re:(.*[.])?layers[.](0|31)[.]mlp[.]down_proj$                           in some
func targetPatterns(lists [][]string, unquantized []string) [][]string {
	ends := map[string]*ending{}
	for g, list := range lists {
		for _, module := range list {
			prefix, end, index := cutEnd(module)
			e := ends[end]
			if e == nil {
				e = &ending{whole: map[string]bool{}, of: map[string]int{}}
				ends[end] = e
			}
			e.whole[shapeOf(prefix)] = true
			e.add(index, g)
		}
	}
	// A module may have the end of another as the end of its own.
	for g, list := range lists {
		for _, module := range list {
			_, own, _ := cutEnd(module)
			for at := range wordStarts(module) {
				if end, index := shapeOf(module[at:]), indexOf(module[at:]); end != own && ends[end] != nil {
					ends[end].add(index, g)
				}
			}
		}
	}
	for _, module := range unquantized {
		prefix, end, index := cutEnd(module)
		if e := ends[end]; e != nil && e.whole[shapeOf(prefix)] {
			e.add(index, none)
		}
	}
	entries := make([][]string, len(lists))
	for g, list := range lists {
		leaves := map[string][]string{} // the last words of ends that have all else in common
		for _, module := range list {
			_, end, index := cutEnd(module)
			e := ends[end]
			if e.of[index] != g {
				entries[g] = append(entries[g], module)
				continue
			}
			parent, leaf := "", end
			if at := strings.LastIndexByte(end, '.'); at >= 0 {
				parent, leaf = end[:at+1], end[at+1:]
			}
			key := e.layers(g) + "\x00" + parent
			if !slices.Contains(leaves[key], leaf) {
				leaves[key] = append(leaves[key], leaf)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(leaves)) {
			layers, parent, _ := strings.Cut(key, "\x00")
			slices.Sort(leaves[key])
			entries[g] = append(entries[g], anywhere+patternOf(parent, layers, leaves[key]))
		}
		slices.Sort(entries[g])
	}
	return entries
}

// An ending is the end of the names of modules, from their first list on.
type ending struct {
	whole map[string]bool // the shapes of the prefixes before it
	of    map[string]int  // the list of each index of the first list, "" for none
}

// In place of a list of modules.
const (
	none   = -1 // unquantized ones
	shared = -2 // several
)

// add says that a module with this index is in list g.
func (e *ending) add(index string, g int) {
	if before, ok := e.of[index]; ok && before != g {
		g = shared
	}
	e.of[index] = g
}

// layers returns the pattern of the indexes that are in list g alone.
func (e *ending) layers(g int) string {
	var own []int
	all := true
	for index, of := range e.of {
		if n, err := strconv.Atoi(index); of == g && err == nil {
			own = append(own, n)
		}
		all = all && of == g
	}
	switch {
	case all:
		return anyIndex
	case len(own) == 1:
		return strconv.Itoa(own[0])
	}
	slices.Sort(own)
	texts := make([]string, len(own))
	for i, n := range own {
		texts[i] = strconv.Itoa(n)
	}
	return "(" + strings.Join(texts, "|") + ")"
}

// anyIndex matches the index of a module.
const anyIndex = `\d+`

// patternOf returns the pattern of ends with # for indexes, of which the first is one of layers.
func patternOf(parent, layers string, leaves []string) string {
	inLeaf := layers
	if strings.Contains(parent, "#") {
		inLeaf = anyIndex
	}
	pattern := strings.Replace(escaped(parent), "#", layers, 1)
	pattern = strings.ReplaceAll(pattern, "#", anyIndex)
	last := make([]string, len(leaves))
	for i, leaf := range leaves {
		last[i] = strings.Replace(escaped(leaf), "#", inLeaf, 1)
	}
	if len(last) == 1 {
		return pattern + last[0] + "$"
	}
	return pattern + "(" + strings.Join(last, "|") + ")$"
}

// cutEnd divides the name of a module before its first list: model. and layers.#.mlp with index 3. A module outside of
// lists has all of its name, but the word model, at its end.
func cutEnd(module string) (prefix, end, index string) {
	at := 0
	for start := range wordStarts(module) {
		word, rest, _ := strings.Cut(module[start:], ".")
		next, _, _ := strings.Cut(rest, ".")
		if number.MatchString(next) && !number.MatchString(word) {
			return module[:start], shapeOf(module[start:]), next
		}
	}
	if strings.HasPrefix(module, "model.") {
		at = len("model.")
	}
	return module[:at], shapeOf(module[at:]), indexOf(module[at:])
}

// shapeOf returns a name with # in place of indexes.
func shapeOf(name string) string {
	words := strings.Split(name, ".")
	for i, w := range words {
		if number.MatchString(w) {
			words[i] = "#"
		}
	}
	return strings.Join(words, ".")
}

// indexOf returns the first index of a name, "" for none.
func indexOf(name string) string {
	for w := range strings.SplitSeq(name, ".") {
		if number.MatchString(w) {
			return w
		}
	}
	return ""
}

// wordStarts returns where the words of a module's name begin.
func wordStarts(module string) func(yield func(at int) bool) {
	return func(yield func(int) bool) {
		for at := 0; ; {
			if !yield(at) {
				return
			}
			next := strings.IndexByte(module[at:], '.')
			if next < 0 {
				return
			}
			at += next + 1
		}
	}
}
