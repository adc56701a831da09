package show

import (
	"math"
	"testing"
)

func TestBytesText(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 999: "999 B", 999.6: "1.00 kB", 1000: "1.00 kB", 9994: "9.99 kB", 9996: "10.0 kB", 99949: "99.9 kB",
		99960: "100 kB", 999499: "999 kB", 999500: "1.00 MB", 2.5e9: "2.50 GB", 4e15: "4.00 PB", 4e18: "4000 PB",
	} {
		if got := BytesText(n); got != want {
			t.Errorf("%v bytes are %q, want %q", n, got, want)
		}
	}
}

func TestParametersText(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 8: "8", 999: "999", 1000: "1000", 8704: "8704", 99_999: "99999", 100_000: "100 k", 9_737_088: "9.74 M", 22_713_728: "22.7 M",
		999.6e6: "1.00 B",
		68.72e9: "68.7 B", 671e9: "671 B", 1.04e12: "1.04 T", 2e15: "2000 T",
	} {
		if got := ParametersText(n); got != want+" parameters" {
			t.Errorf("%v parameters are %q, want %q of them", n, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		if got := Counted(n, "file"); got != want {
			t.Errorf("%d files are %q, want %q", n, got, want)
		}
	}
}

func TestDurationText(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0 ms", 0.0004: "0 ms", 0.0006: "1 ms", 0.0124: "12 ms", 0.9994: "999 ms", 0.9996: "1 s", 1.24: "1.2 s", 9: "9 s", 9.96: "10 s",
		42.4: "42 s",
		59.4: "59 s", 59.6: "1 min 0 s", 125: "2 min 5 s", 3599.4: "59 min 59 s", 3599.6: "1 h 0 min", 11220: "3 h 7 min", 7199: "2 h 0 min",
		360000: "100 h 0 min",
	} {
		if got := DurationText(s); got != want {
			t.Errorf("%v seconds are %q, want %q", s, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1e-9: "<0.001%", -1e-9: "<0.001%", 1.14e-5: "0.0011%", 0.000234: "0.023%", -0.0042: "-0.42%", 0.0123: "1.2%", 0.0994: "9.9%",
		0.0996: "10%", -0.126: "-13%", 0.9951: "100%", 1: "100%",
		math.Inf(1): "-", math.NaN(): "-",
	} {
		if got := Percent(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

func TestDecibels(t *testing.T) {
	for v, want := range map[float64]string{31.5449: "31.54", -2: "-2.00", math.Inf(1): "exact", math.Inf(-1): "-", math.NaN(): "-"} {
		if got := Decibels(v); got != want {
			t.Errorf("%v dB are %q, want %q", v, got, want)
		}
	}
}
