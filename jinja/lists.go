package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

func first(v any, _ given) (any, error) {
	s, ok := v.(*sequence)
	if ok && s.kind == generator && len(s.items) > 0 { // the other items stay
		v := s.items[0]
		s.items = s.items[1:]
		return v, nil
	}
	items, err := iterate(v)
	if err != nil || len(items) > 0 {
		return firstOf(items), err
	}
	return &undefined{"an empty sequence has no first item"}, nil
}

func firstOf(items []any) any {
	if len(items) == 0 {
		return nil
	}
	return items[0]
}

func last(v any, _ given) (any, error) {
	if s, ok := v.(*sequence); ok && s.kind == generator {
		return nil, fmt.Errorf("a generator has no last item: convert it by the filter list")
	}
	items, err := iterate(v)
	if err != nil || len(items) > 0 {
		return firstOf(items[max(len(items)-1, 0):]), err
	}
	return &undefined{"an empty sequence has no last item"}, nil
}

func toList(v any, _ given) (any, error) {
	items, err := iterate(v)
	return newList(slices.Clone(items)), err
}

func reverse(v any, _ given) (any, error) {
	items, err := iterate(v)
	items = slices.Clone(items)
	slices.Reverse(items)
	if _, ok := v.(string); ok {
		return concatenated(items), err
	}
	return newGenerator(items), err
}

func items(v any, _ given) (any, error) {
	switch v := v.(type) {
	case *undefined:
		return newGenerator(nil), nil
	case *Dict:
		return newGenerator(v.items()), nil
	}
	return nil, fmt.Errorf("want a mapping, not a value of type %s", typeName(v))
}

// A getter returns the part of an item that a filter works on.
type getter func(any) (any, error)

// attributeOf returns a getter of an attribute such as function.name or arguments.0. nil is the item
// itself. Without attribute, the value is fallback, unless that is nil.
func attributeOf(path, fallback any) getter {
	if path == nil {
		return func(v any) (any, error) { return v, nil }
	}
	var parts []any
	if s, ok := path.(string); ok {
		for part := range strings.SplitSeq(s, ".") {
			if i, ok := index(part); ok {
				parts = append(parts, i)
			} else {
				parts = append(parts, part)
			}
		}
	} else {
		parts = []any{path}
	}
	return func(v any) (any, error) {
		for _, part := range parts {
			var err error
			if v, err = item(v, part); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && fallback != nil {
				v = fallback
			}
		}
		return v, nil
	}
}

// caseless returns a getter that ignores the case of strings.
func caseless(get getter, sensitive bool) getter {
	return func(v any) (any, error) {
		v, err := get(v)
		if s, ok := v.(string); ok && !sensitive {
			return lower(s), err
		}
		return v, err
	}
}

func join(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	get, separator := attributeOf(g.or(1, nil), nil), str(g.or(0, ""))
	texts := make([]string, len(all))
	for i, x := range all {
		if x, err = get(x); err != nil {
			return nil, err
		}
		texts[i] = str(x)
	}
	return strings.Join(texts, separator), nil
}

func sum(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	get, total := attributeOf(g.or(0, nil), nil), g.or(1, int64(0))
	if _, ok := total.(string); ok {
		return nil, errors.New("strings cannot be summed: use the filter join")
	}
	for _, x := range all {
		if x, err = get(x); err != nil {
			return nil, err
		}
		if total, err = arithmetic("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// batch divides items into lists of n.
func batch(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	n, err := g.integer(0, 0)
	if err != nil || n < 1 {
		return nil, orError(err, "linecount is %d, want at least 1", n)
	}
	var batches []any
	for part := range slices.Chunk(all, int(min(n, int64(len(all)+1)))) {
		part = slices.Clone(part)
		for g.or(1, nil) != nil && int64(len(part)) < n {
			part = append(part, g[1])
		}
		batches = append(batches, newList(part))
	}
	return newGenerator(batches), nil
}

// sliceLists divides items into n lists.
func sliceLists(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	n, err := g.integer(0, 0)
	if err != nil || n < 1 {
		return nil, orError(err, "slices is %d, want at least 1", n)
	}
	each, longer := len(all)/int(n), len(all)%int(n)
	var lists []any
	for i, from := 0, 0; i < int(n); i++ {
		to := from + each
		if i < longer {
			to++
		}
		part := slices.Clone(all[from:to])
		if g.or(1, nil) != nil && i >= longer {
			part = append(part, g[1])
		}
		lists = append(lists, newList(part))
		from = to
	}
	return newGenerator(lists), nil
}

// sortBy returns items in the order of what get returns.
func sortBy(all []any, get getter, reverse bool) ([]any, error) {
	type keyed struct{ key, value any }
	list := make([]keyed, len(all))
	for i, x := range all {
		key, err := get(x)
		if err != nil {
			return nil, err
		}
		list[i] = keyed{key, x}
	}
	var problem error
	slices.SortStableFunc(list, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		c, err := compare(a.key, b.key)
		if err != nil {
			problem = err
		}
		return c
	})
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x.value
	}
	return out, problem
}

func sorted(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	reverse, err := g.integer(0, 0)
	if err != nil {
		return nil, err
	}
	paths := []any{nil}
	switch s := g.or(2, nil).(type) {
	case nil:
	case string: // several attributes, with commas between
		paths = nil
		for path := range strings.SplitSeq(s, ",") {
			paths = append(paths, path)
		}
	default:
		paths = []any{s}
	}
	getters := make([]getter, len(paths))
	for i, path := range paths {
		getters[i] = caseless(attributeOf(path, nil), g.is(1))
	}
	all, err = sortBy(all, func(v any) (any, error) {
		key := make([]any, len(getters))
		for i, get := range getters {
			if key[i], err = get(v); err != nil {
				return nil, err
			}
		}
		return newList(key), nil
	}, reverse != 0)
	return newList(all), err
}

func dictSort(v any, g given) (any, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("want a mapping, not a value of type %s", typeName(v))
	}
	at := int64(0)
	switch by := g.or(1, "key"); by {
	case "key":
	case "value":
		at = 1
	default:
		return nil, fmt.Errorf("by is %s, want key or value", repr(by))
	}
	reverse, err := g.integer(2, 0)
	if err != nil {
		return nil, err
	}
	all, err := sortBy(d.items(), caseless(func(v any) (any, error) { return item(v, at) }, g.is(0)), reverse != 0)
	return newList(all), err
}

// extreme returns the first item whose order relative to all others is sign or 0.
func extreme(v any, g given, sign int) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return &undefined{"an empty sequence has no minimum and no maximum"}, nil
	}
	get := caseless(attributeOf(g.or(1, nil), nil), g.is(0))
	best := all[0]
	for _, x := range all[1:] {
		a, err := get(x)
		if err != nil {
			return nil, err
		}
		b, err := get(best)
		if err != nil {
			return nil, err
		}
		c, err := compare(a, b)
		if err != nil {
			return nil, err
		}
		if c == sign {
			best = x
		}
	}
	return best, nil
}

func unique(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	get := caseless(attributeOf(g.or(1, nil), nil), g.is(0))
	seen := NewDict()
	var kept []any
	for _, x := range all {
		key, err := get(x)
		if err != nil {
			return nil, err
		}
		if _, ok, err := seen.get(key); ok || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		kept = append(kept, x)
		_ = seen.set(key, nil) // it is hashable
	}
	return newGenerator(kept), nil
}

func groupBy(v any, g given) (any, error) {
	all, err := iterate(v)
	if err != nil {
		return nil, err
	}
	get := caseless(attributeOf(g[0], g.or(1, nil)), g.is(2))
	if all, err = sortBy(all, get, false); err != nil {
		return nil, err
	}
	var groups []any
	var key any
	for _, x := range all {
		k, err := get(x)
		if err != nil {
			return nil, err
		}
		if groups == nil || !equal(key, k) {
			named, err := attributeOf(g[0], g.or(1, nil))(x)
			if err != nil {
				return nil, err
			}
			key = k
			groups = append(groups, &sequence{kind: tuple, name: "group", items: []any{named, newList(nil)}})
		}
		group := groups[len(groups)-1].(*sequence).items[1].(*sequence)
		group.items = append(group.items, x)
	}
	return newList(groups), nil
}

// iterateTrue returns the elements of v: none if its truth value is false, as map and select do.
func iterateTrue(v any) ([]any, error) {
	if !truth(v) {
		return nil, nil
	}
	return iterate(v)
}

// mapped applies a filter to all items, or takes an attribute of them.
func mapped(v any, args []any, kwargs *Dict) (any, error) {
	all, err := iterateTrue(v)
	if err != nil {
		return nil, err
	}
	var apply getter
	if path, ok, _ := kwargs.get("attribute"); ok && len(args) == 0 {
		g, err := bind("attribute [default]", nil, kwargs)
		if err != nil {
			return nil, err
		}
		apply = attributeOf(path, g.or(1, nil))
	} else {
		name, ok := firstOf(args).(string)
		if !ok {
			return nil, fmt.Errorf("want the name of a filter, or an attribute")
		}
		apply = func(v any) (any, error) { return applyFilter(name, v, args[1:], kwargs) }
	}
	results := make([]any, len(all))
	for i, x := range all {
		if results[i], err = apply(x); err != nil {
			return nil, err
		}
	}
	return newGenerator(results), nil
}

// selecting is a filter of the items for which a test has the result keep.
func selecting(keep, ofAttribute bool) filter {
	return func(v any, args []any, kwargs *Dict) (any, error) {
		return selected(v, args, kwargs, keep, ofAttribute)
	}
}

// selected returns the items for which the test, of the item or of its attribute, returns keep.
func selected(v any, args []any, kwargs *Dict, keep, ofAttribute bool) (any, error) {
	all, err := iterateTrue(v)
	if err != nil {
		return nil, err
	}
	get := attributeOf(nil, nil)
	if ofAttribute {
		if len(args) == 0 {
			return nil, fmt.Errorf("want an attribute")
		}
		get, args = attributeOf(args[0], nil), args[1:]
	}
	var kept []any
	for _, x := range all {
		part, err := get(x)
		if err != nil {
			return nil, err
		}
		ok := truth(part)
		if len(args) > 0 {
			if ok, err = applyTest(str(args[0]), part, args[1:], kwargs); err != nil {
				return nil, err
			}
		}
		if ok == keep {
			kept = append(kept, x)
		}
	}
	return newGenerator(kept), nil
}
