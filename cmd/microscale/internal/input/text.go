package input

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/internal/memory"
)

// ReadAll reads what r holds. More than limit bytes are an error.
func ReadAll(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it is too long: want at most %s", name, memory.Text(float64(limit)))
	}
	return data, nil
}
