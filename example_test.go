package microscale_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Quantize a tensor by the rules of Transformer Engine and of OCP, and measure the error.
func Example() {
	x := tensor.New(64, 256)
	for i := range x.Data {
		x.Data[i] = float32(i*i%1009-500) / 977 // any numbers
	}
	for _, name := range []string{"te", "ocp"} {
		p, err := profile.Lookup(name)
		if err != nil {
			log.Fatal(err)
		}
		q, err := p.Quantizer(quant.MXFP8)
		if err != nil {
			log.Fatal(err)
		}
		w, err := q.Rowwise(x, quant.With{})
		if err != nil {
			log.Fatal(err)
		}
		r, err := measure.Compare(measure.Comparison{Got: w.Dequantize(0), Want: x})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-4s %d bytes, first scale %d, SQNR %.2f dB\n", name, len(w.Codes)+len(w.Scales), w.Scales[0], r.SQNR)
	}
	// Output:
	// te   16896 bytes, first scale 118, SQNR 32.76 dB
	// ocp  16896 bytes, first scale 118, SQNR 29.81 dB
}
