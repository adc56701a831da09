package decoder

import (
	"os"
	"testing"

	"github.com/microscale-go/microscale/internal/ramdisk"
)

func TestMain(m *testing.M) { os.Exit(ramdisk.Main(m)) }
