package convert

import (
	"fmt"
	"os"
	"testing"

	"github.com/microscale-go/microscale/internal/ramdisk"
)

func TestMain(m *testing.M) {
	status := ramdisk.Main(m)
	if theSample != nil {
		if err := theSample.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}
