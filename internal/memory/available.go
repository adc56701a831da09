package memory

import (
	"fmt"
	"math"
)

// unknown is the result of Available if the system does not report it: more than any machine
// has, and less than the address space.
const unknown = 64 << 40

// Text formats bytes with a unit, as "1.5 GiB".
func Text(bytes float64) string {
	units := [...]string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for ; math.Round(bytes*10)/10 >= 1024 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", bytes, units[i])
	}
	return fmt.Sprintf("%.1f %s", bytes, units[i])
}
