// Package blocksize measures the error of block formats by block size, scale rule and
// distribution of the values, and what a scale does that a direct cast does not.
//
// Values come from a stateless SplitMix64 stream, so that every figure can be computed again
// elsewhere: u(i) = (mix(seed + (i+1)·0x9E3779B97F4A7C15) >> 11 + ½)·2⁻⁵³.
package blocksize

import (
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/tensor"
)

// A Distribution is a named distribution of values.
type Distribution struct {
	Name, Doc string
	value     func(seed, i uint64) float64
}

// rowElements is the width of the matrices that values fill, and the number of channels.
const rowElements = 4096

// signSeed is added to the seed of signs and masks.
const signSeed = 1_000_003

var gaussian = Distribution{"gauss", "standard normal", gauss}

// The table of distributions. In range12 and range20, each 32 elements have a separate magnitude.
var distributions = []Distribution{
	gaussian,
	{"laplace", "Laplace", laplace},
	{"t5", "Student's t with 5 degrees of freedom", student(5)},
	{"t3", "Student's t with 3 degrees of freedom", student(3)},
	{"lognormal", "log-normal with random signs", lognormal},
	{"uniform", "uniform over (-1, 1)", func(seed, i uint64) float64 { return 2*uniform(seed, 2*i) - 1 }},
	{"outliers", "normal, 1 % of the elements times 20", outliers},
	{"channels", "normal, 6 of 4096 channels times 50", channels},
	{"range12", "normal, blocks of 32 times 2^U(-12, 12)", ranged(12)},
	{"range20", "normal, blocks of 32 times 2^U(-20, 20)", ranged(20)},
}

// Distributions returns all distributions. The caller must not modify them.
func Distributions() []Distribution { return distributions }

// Lookup returns the distribution with the given name, ignoring case. For an unknown name, the error
// lists similar distributions, or all.
func Lookup(name string) (Distribution, error) {
	var names []string
	for _, d := range distributions {
		if strings.EqualFold(d.Name, name) {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return Distribution{}, naming.Unknown("distribution", name, names)
}

// String returns the distribution's name.
func (d Distribution) String() string { return d.Name }

// Sample returns rows of 4096 values of the distribution: the same for the same seed.
func (d Distribution) Sample(rows int, seed uint64) tensor.Dense {
	x := tensor.New(rows, rowElements)
	for i := range x.Data {
		x.Data[i] = float32(d.value(seed, uint64(i)))
	}
	return x
}

// uniform returns number i of the stream, in (0, 1).
func uniform(seed, i uint64) float64 {
	z := seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return (float64(z>>11) + 0.5) * 0x1p-53
}

func gauss(seed, i uint64) float64 {
	return math.Sqrt(-2*math.Log(uniform(seed, 2*i))) * math.Cos(2*math.Pi*uniform(seed, 2*i+1))
}

func laplace(seed, i uint64) float64 {
	u := uniform(seed, 2*i) - 0.5
	return math.Copysign(math.Log(1-2*math.Abs(u)), u)
}

func student(nu float64) func(seed, i uint64) float64 {
	return func(seed, i uint64) float64 {
		radius := nu * (math.Pow(uniform(seed, 2*i), -2/nu) - 1)
		return math.Sqrt(radius) * math.Cos(2*math.Pi*uniform(seed, 2*i+1))
	}
}

func lognormal(seed, i uint64) float64 {
	return math.Copysign(math.Exp(gauss(seed, i)), uniform(seed+signSeed, i)-0.5)
}

func outliers(seed, i uint64) float64 {
	if uniform(seed+signSeed, i) < 0.01 {
		return 20 * gauss(seed, i)
	}
	return gauss(seed, i)
}

func channels(seed, i uint64) float64 {
	switch i % rowElements {
	case 7, 911, 1404, 2201, 3000, 4001:
		return 50 * gauss(seed, i)
	}
	return gauss(seed, i)
}

func ranged(r float64) func(seed, i uint64) float64 {
	return func(seed, i uint64) float64 {
		return gauss(seed, i) * math.Exp2(r*(2*uniform(seed+signSeed, i/32)-1))
	}
}
