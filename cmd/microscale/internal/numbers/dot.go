package numbers

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
)

// A DotCase is the operands of a dot product.
type DotCase struct {
	a, b           []uint64
	c              uint64
	scaleA, scaleB []byte
	rounded        []string // inputs that a type does not represent: "0.3 → 0.3125 in e4m3"
}

// maxProducts limits the products of a case, and with them the memory.
const maxProducts = 1 << 20

// Unit returns the unit of m for the operands o, and the number of products of a case:
// k, or the K of the unit if k is 0.
func Unit(m *mma.Model, o mma.Options, k int) (*mma.Unit, int, error) {
	u, err := m.Unit(o)
	if err != nil {
		return nil, 0, show.Misuse("%s", err)
	}
	switch {
	case k == 0:
		return u, u.K, nil
	case k > maxProducts:
		return nil, 0, show.Misuse("--k %d: use %d at most", k, maxProducts)
	case slices.Contains(u.Ks(), k):
		o.K = k
		u, err = m.Unit(o)
		return u, k, err
	case k < 0 || k%u.K != 0:
		return nil, 0, show.Misuse("--k %d: use a multiple of %d, the K of %s with %s×%s%s", k, u.K, u.Model, u.A, u.B, shorterText(u))
	}
	return u, k, nil
}

// shorterText returns the K of the shorter instructions of a unit, if it has any.
func shorterText(u *mma.Unit) string {
	text := ""
	for _, k := range u.Ks()[1:] {
		text += fmt.Sprintf(", or %d", k)
	}
	return text
}

// ParseCase parses products A:B or A:B:N, C and the scales.
func ParseCase(u *mma.Unit, k int, products []string, c string, scalesA, scalesB []string) (d DotCase, err error) {
	if len(products) == 0 {
		return d, show.Misuse("no products: give some, such as 1:1 0.5:-2 or 1:1:32")
	}
	for _, p := range products {
		fields := strings.Split(p, ":")
		count := 1
		if len(fields) == 3 {
			if count, err = strconv.Atoi(fields[2]); err != nil || count < 1 {
				return d, show.Misuse("%q: %q is not a number of products", p, fields[2])
			}
		} else if len(fields) != 2 {
			return d, show.Misuse("%q is not a product: use A:B, or A:B:N for N of them", p)
		}
		if count > k-len(d.a) {
			return d, show.Misuse("more products than K = %d: omit some, or use --k", k)
		}
		a, err := d.operand(fields[0], u.A)
		if err != nil {
			return d, err
		}
		b, err := d.operand(fields[1], u.B)
		if err != nil {
			return d, err
		}
		for range count {
			d.a, d.b = append(d.a, a), append(d.b, b)
		}
	}
	rest := make([]uint64, k-len(d.a))
	d.a, d.b = append(d.a, rest...), append(d.b, rest...)
	if d.c, err = d.operand(c, u.Out); err != nil {
		return d, err
	}
	if d.scaleA, err = d.scales("scales-a", scalesA, u, k); err != nil {
		return d, err
	}
	d.scaleB, err = d.scales("scales-b", scalesB, u, k)
	return d, err
}

// IsProduct reports whether s starts with a number and a colon.
func IsProduct(s string) bool {
	a, _, product := strings.Cut(s, ":")
	return product && IsNumber(a)
}

// operand parses a number and returns its code in t. It records numbers that t does not represent.
func (d *DotCase) operand(text string, t *mma.Type) (uint64, error) {
	code, err := parseOperand(text, t)
	if v, parseErr := strconv.ParseFloat(text, 64); err == nil && parseErr == nil && v == v && v != t.Value(code) {
		note := fmt.Sprintf("%s → %s in %s", text, exactText(t.Value(code)), t)
		if !slices.Contains(d.rounded, note) {
			d.rounded = append(d.rounded, note)
		}
	}
	return code, err
}

// parseOperand parses a number and returns its code, rounded to t.
func parseOperand(s string, t *mma.Type) (uint64, error) {
	if t.Scalar == nil {
		if bits, err := strconv.ParseUint(s, 0, 64); err == nil && strings.HasPrefix(strings.ToLower(s), "0x") {
			return bits, nil
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, show.Misuse("%q is not a number of %s", s, t)
		}
		return math.Float64bits(v), nil
	}
	f := t.Scalar
	lower := strings.ToLower(s)
	switch {
	case lower == "nan" && f.HasNaN():
		return uint64(f.EncodeWith(float32(math.NaN()), format.Conversion{}, 0)), nil
	case lower == "nan", strings.Contains(lower, "inf") && !f.HasInf():
		return 0, show.Misuse("%s has no %s: use a number", t, s)
	}
	v, pattern, err := Parse(s, f)
	if err == nil && v != v && !strings.HasPrefix(lower, "0x") {
		return 0, show.Misuse("%s is beyond the maximum of %s, %v", s, t, f.Max())
	}
	return uint64(pattern), err
}

// scales parses the scales of k products and returns their codes. The default is 1; one scale applies
// to all blocks.
func (d *DotCase) scales(flag string, texts []string, u *mma.Unit, k int) ([]byte, error) {
	n := u.Scales(k)
	switch {
	case len(texts) > 0 && n == 0:
		return nil, show.Misuse("--%s: %s has no block scales; omit the flag", flag, u.Model)
	case len(texts) == 0:
		texts = []string{"1"}
	case len(texts) != 1 && len(texts) != n:
		want := "1"
		if n > 1 {
			want = fmt.Sprintf("1 or %d", n)
		}
		return nil, show.Misuse("--%s: got %d scales, want %s", flag, len(texts), want)
	}
	codes := make([]byte, n)
	for i := range codes {
		code, err := d.operand(texts[i%len(texts)], u.Scale)
		if err != nil {
			return nil, err
		}
		codes[i] = byte(code)
	}
	return codes, nil
}
