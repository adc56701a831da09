package quant

import (
	"encoding"
	"encoding/json"
	"fmt"
	"testing"
)

// TestNames checks that the name of each value of each enumeration is read as that value, in
// any case and as JSON, and that unknown values and names are errors and do not panic.
func TestNames(t *testing.T) {
	testNames[Direction](t, len(directionNames))
	testNames[Arithmetic](t, len(arithmetics))
	testNames[NonFinite](t, int(PoisonZero)+1)
	testNames[NegativeZero](t, int(DropNegativeZero)+1)
	testNames[Search](t, int(FourOverSixMAE)+1)
	testNames[ScaleRule](t, len(scaleRules))
}

func testNames[E interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}](t *testing.T, n int) {
	t.Helper()
	read := func(e *E, text []byte) error { return any(e).(encoding.TextUnmarshaler).UnmarshalText(text) }
	for i := range n {
		var got E
		text, err := E(i).MarshalText()
		if err != nil || string(text) != E(i).String() {
			t.Errorf("%T %d is the text %q, %v, want %q", got, i, text, err, E(i))
		}
		if err := read(&got, text); err != nil || got != E(i) {
			t.Errorf("%T: %q is read as %d, %v, want %d", got, text, got, err, i)
		}
		data, err := json.Marshal(E(i))
		if err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal(data, &got); err != nil || got != E(i) {
			t.Errorf("%T: %s is read as %d, %v, want %d", got, data, got, err, i)
		}
	}
	var got E
	unknown := E(n)
	if text, err := unknown.MarshalText(); err == nil {
		t.Errorf("%T %d is the text %q, want an error", got, n, text)
	}
	if want := fmt.Sprintf("(%d)", n); len(unknown.String()) < len(want) || unknown.String()[len(unknown.String())-len(want):] != want {
		t.Errorf("%T %d has the name %q, want its number in it", got, n, unknown)
	}
	if err := read(&got, []byte("no such name")); err == nil {
		t.Errorf("%T: an unknown name is read as %d", got, got)
	}
}

// TestFormatsComparable checks that formats are compared by ==.
func TestFormatsComparable(t *testing.T) {
	f, err := Lookup("MXFP8-E4M3")
	if err != nil || f != MXFP8 || f == MXFP4 || (Quantizer{Format: f}) != (Quantizer{Format: MXFP8}) {
		t.Errorf("Lookup returns %v, %v, want MXFP8", f, err)
	}
}
