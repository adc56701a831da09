package numbers

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/mma"
)

// StreamCases reads cases of k products from r, and writes their results to w.
func StreamCases(w io.Writer, r io.Reader, u *mma.Unit, k int) error {
	const buffer = 1 << 16
	in, out := bufio.NewReaderSize(r, buffer), bufio.NewWriterSize(w, buffer)
	scales := u.Scales(k)
	size := k*(u.A.Bytes+u.B.Bytes) + u.Out.Bytes + 2*scales
	data, result := make([]byte, size), make([]byte, 8)
	a, b := make([]uint64, k), make([]uint64, k)
	for done := 0; ; done++ {
		if in.Buffered() < size { // a client may wait for results before it sends the next case
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write standard output: %w", err)
			}
		}
		n, err := io.ReadFull(in, data)
		if err != nil {
			if problem := out.Flush(); problem != nil {
				return fmt.Errorf("write standard output: %w", problem)
			}
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case errors.Is(err, io.ErrUnexpectedEOF):
				return fmt.Errorf("standard input ends within case %d: got %d bytes, want %d for %s; %s written", done+1, n, size, caseText(u, k),
					show.Counted(done, "result"))
			}
			return fmt.Errorf("read standard input after %s: %w", show.Counted(done, "case"), err)
		}
		rest := data
		for i := range a {
			a[i], rest = littleEndian(rest[:u.A.Bytes]), rest[u.A.Bytes:]
		}
		for i := range b {
			b[i], rest = littleEndian(rest[:u.B.Bytes]), rest[u.B.Bytes:]
		}
		c := littleEndian(rest[:u.Out.Bytes])
		rest = rest[u.Out.Bytes:]
		d := u.Dot(a, b, c, rest[:scales], rest[scales:])
		for i := range u.Out.Bytes {
			result[i] = byte(d >> (8 * i))
		}
		if _, err := out.Write(result[:u.Out.Bytes]); err != nil {
			return fmt.Errorf("write standard output: %w", err)
		}
	}
}

// caseText describes the parts of a case.
func caseText(u *mma.Unit, k int) string {
	text := fmt.Sprintf("%d %s, %d %s, C in %s", k, u.A, k, u.B, u.Out)
	if n := u.Scales(k); n > 0 {
		text += fmt.Sprintf(", 2×%d %s", n, u.Scale)
	}
	return text
}

func littleEndian(b []byte) (code uint64) {
	for i, x := range b {
		code |= uint64(x) << (8 * i)
	}
	return code
}
