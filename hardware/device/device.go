// Package device is a table of accelerators: peak rates and bandwidths of devices, and which
// operands, scales, layouts and shapes the matrix units and libraries of an architecture
// support. Every number has a source. A figure without a source is unknown, and its note says
// why.
//
// Check tests whether a device multiplies operands of given formats and shapes, names the
// operands that need a transposed copy, and lists what the training libraries report.
//
// Layouts are cuBLAS's, for column-major matrices: TN reads both operands contiguous along the
// dimension that the product sums over. For row-major tensors X (m×k), W (n×k) and dY (m×n),
// the products of a linear layer are
//
//	fprop  Y  = X·Wᵀ    TN, sums over k
//	dgrad  dX = dY·W    NN, sums over n
//	wgrad  dW = dYᵀ·X   NT, sums over m
package device

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/naming"
)

// A Device is one accelerator.
type Device struct {
	Name    string   // as in --device
	Aliases []string // other products with the same rows, matched without regard to case
	Product string
	Arch    *Architecture

	// Dense peaks of the matrix units with FP32 accumulation, in FLOP/s.
	BF16, FP8, FP6, FP4 Figure

	// Compute units and their clock in Hz, where the peaks are computed from them; else 0.
	Units int
	Clock float64

	Bandwidth Figure // of the memory, in bytes per second
}

const tera = 1e12

// Why a figure is unknown.
const (
	noUnit  = "the architecture has no such unit"
	noDense = "no source lists the dense rate"
)

// perClock completes a device whose peaks are compute units × clock × operations per clock and
// unit. 0 operations: the architecture has no such unit.
func perClock(d Device, bf16, fp8, fp6, fp4 int) *Device {
	peak := func(operations int) Figure {
		if operations == 0 {
			return unknown(noUnit)
		}
		return noted(float64(d.Units)*d.Clock*float64(operations), &ratesCDNA, fmt.Sprintf("%d CU × %.1f GHz × %d operations", d.Units,
			d.Clock/1e9, operations))
	}
	d.BF16, d.FP8, d.FP6, d.FP4 = peak(bf16), peak(fp8), peak(fp6), peak(fp4)
	return &d
}

// The table of devices.
var devices = []*Device{
	{Name: "l40s", Product: "NVIDIA L40S", Arch: ada,
		BF16: figure(362*tera, &sheetL40S), FP8: figure(733*tera, &sheetL40S), FP6: unknown(noUnit), FP4: unknown(noUnit),
		Bandwidth: figure(0.864*tera, &sheetL40S)},
	{Name: "h100", Aliases: []string{"h100-sxm"}, Product: "NVIDIA H100 SXM", Arch: hopper,
		BF16: figure(989*tera, &sheetH100), FP8: figure(1979*tera, &sheetH100), FP6: unknown(noUnit), FP4: unknown(noUnit),
		Bandwidth: figure(3.35*tera, &sheetH100)},
	{Name: "h200", Product: "NVIDIA H200 SXM", Arch: hopper,
		BF16: figure(989*tera, &sheetH200), FP8: figure(1979*tera, &sheetH200), FP6: unknown(noUnit), FP4: unknown(noUnit),
		Bandwidth: figure(4.8*tera, &sheetH200)},
	{Name: "b200", Aliases: []string{"hgx-b200"}, Product: "NVIDIA HGX B200", Arch: blackwell100,
		BF16: figure(2250*tera, &sheetHGX), FP8: figure(4500*tera, &sheetHGX), FP6: figure(4500*tera, &sheetHGX),
		FP4:       figure(9000*tera, &sheetHGX),
		Bandwidth: noted(7.7*tera, &sheetHGX, "HGX; other B200 products have 8 TB/s")},
	{Name: "gb200", Product: "NVIDIA GB200", Arch: blackwell100,
		BF16: figure(2500*tera, &sheetGB200), FP8: figure(5000*tera, &sheetGB200), FP6: figure(5000*tera, &sheetGB200),
		FP4:       figure(10000*tera, &sheetGB200),
		Bandwidth: figure(8*tera, &sheetGB200)},
	{Name: "b300", Aliases: []string{"hgx-b300"}, Product: "NVIDIA HGX B300", Arch: blackwell103,
		BF16: figure(2250*tera, &tablesB300), FP8: figure(4500*tera, &tablesB300), FP6: figure(4500*tera, &tablesB300),
		FP4: noted(13125*tera, &tablesB300,
			"another table has 14,000: datacrunch.io/blog/nvidia-b300-vs-b200-complete-gpu-comparison-to-date"),
		Bandwidth: figure(8*tera, &tablesB300)},
	{Name: "gb300", Product: "NVIDIA GB300", Arch: blackwell103,
		BF16: figure(2500*tera, &tablesB300), FP8: figure(5000*tera, &tablesB300), FP6: figure(5000*tera, &tablesB300),
		FP4:       figure(15000*tera, &tablesB300),
		Bandwidth: figure(8*tera, &tablesB300)},
	{Name: "rtx-pro-6000", Product: "NVIDIA RTX PRO 6000 Blackwell", Arch: blackwell120,
		BF16: unknown(noDense), FP8: unknown(noDense), FP6: unknown(noDense), FP4: unknown(noDense),
		Bandwidth: figure(1.792*tera, &newsRTXPro)},
	perClock(Device{Name: "mi300x", Product: "AMD Instinct MI300X", Arch: cdna3, Units: 304, Clock: 2.1e9,
		Bandwidth: figure(5.3*tera, &sheetMI300X)}, 2048, 4096, 0, 0),
	perClock(Device{Name: "mi350x", Product: "AMD Instinct MI350X", Arch: cdna4, Units: 256, Clock: 2.2e9,
		Bandwidth: figure(8*tera, &sheetMI350X)}, 4096, 8192, 16384, 16384),
	perClock(Device{Name: "mi355x", Product: "AMD Instinct MI355X", Arch: cdna4, Units: 256, Clock: 2.4e9,
		Bandwidth: figure(8*tera, &sheetMI355X)}, 4096, 8192, 16384, 16384),
}

// All returns the devices of the table.
func All() []*Device { return slices.Clone(devices) }

// Lookup returns the device with the given name or alias. Case is ignored.
func Lookup(name string) (*Device, error) {
	var names []string
	for _, d := range devices {
		for _, n := range append([]string{d.Name}, d.Aliases...) {
			if strings.EqualFold(n, name) {
				return d, nil
			}
		}
		names = append(names, d.Name)
	}
	return nil, naming.Unknown("device", name, names)
}

// String returns the device's name.
func (d *Device) String() string { return d.Name }

// Peak returns the dense peak, in FLOP/s, of products of operands with elements e.
func (d *Device) Peak(e *format.Scalar) Figure {
	switch {
	case e.Integer:
		return unknown("the table has no integer rates")
	case e.StoredBits() == 4:
		return d.FP4
	case e.StoredBits() == 6:
		return d.FP6
	case e.StoredBits() == 8:
		return d.FP8
	case e.StoredBits() == 16:
		return d.BF16
	}
	return unknown(fmt.Sprintf("the table has no rate of %s", e))
}
