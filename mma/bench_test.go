package mma_test

import (
	"testing"

	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

// BenchmarkDot measures the last unit of every model, in products per second.
func BenchmarkDot(b *testing.B) {
	for _, m := range mma.Models() {
		units := m.Units()
		u := units[len(units)-1]
		b.Run(m.Name+"/"+u.A.Name, func(b *testing.B) {
			source := mmatest.Source(1)
			c := mmatest.Hard(u, 16*u.K, &source)
			for b.Loop() {
				c.Dot(u)
			}
			b.ReportMetric(float64(b.N)*float64(len(c.A))/b.Elapsed().Seconds()/1e6, "Mproducts/s")
		})
	}
}
