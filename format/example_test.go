package format_test

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
)

func Example() {
	f, err := format.Lookup("torch.float8_e4m3fn")
	if err != nil {
		fmt.Println(err)
		return
	}
	code := f.Encode(0.3952)
	fmt.Printf("%s: code 0x%02x, value %v, largest %v\n", f, code, f.Decode(code), f.Max())
	// Output: e4m3: code 0x2d, value 0.40625, largest 448
}

func ExampleAll() {
	for _, f := range format.All() {
		if f.Bits() <= 6 {
			fmt.Printf("%-5s %d bits, %v to %v\n", f, f.Bits(), f.Smallest(), f.Max())
		}
	}
	// Output:
	// e3m2  6 bits, 0.0625 to 28
	// e2m3  6 bits, 0.125 to 7.5
	// e2m1  4 bits, 0.5 to 6
	// s4    4 bits, 1 to 7
}

func ExampleScalar_EncodeWith() {
	for _, r := range []format.Rounding{format.NearestEven, format.HalfAway, format.HalfTowardZero} {
		code := format.E2M1.EncodeWith(2.5, format.Conversion{Rounding: r}, 0)
		fmt.Println(r, format.E2M1.Decode(code))
	}
	// Above Max, NVIDIA's cvt.satfinite saturates and ml_dtypes' cast overflows.
	fmt.Println(format.E5M2.Decode(format.E5M2.EncodeWith(1e6, format.Conversion{Overflow: format.Saturate}, 0)))
	fmt.Println(format.E5M2.Decode(format.E5M2.EncodeWith(1e6, format.Conversion{Overflow: format.NonSaturating}, 0)))
	// Output:
	// nearest-even 2
	// half-away 3
	// half-toward-zero 2
	// 57344
	// +Inf
}

func ExampleScalar_Join() {
	codes := make([]byte, 4)
	format.E2M1.EncodeSlice(codes, []float32{0.5, 1, -6, 0})
	bytes := make([]byte, 2)
	format.E2M1.Join(bytes, codes)
	fmt.Printf("%x → %x\n", codes, bytes)
	// Output: 01020f00 → 210f
}
