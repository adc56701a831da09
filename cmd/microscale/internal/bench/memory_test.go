package bench

import (
	"bytes"
	"math"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
)

// TestMovers checks that every mover reads and writes exactly the memory given.
func TestMovers(t *testing.T) {
	for _, m := range movers {
		if !cpu.Has(m.needs) {
			t.Logf("%s: this processor lacks its instructions", m.name)
			continue
		}
		t.Run("mover="+m.name, func(t *testing.T) {
			for _, side := range []guard.Side{guard.Start, guard.End} {
				for _, n := range []int{0, 512, 1024, 8192} {
					src := guard.Bytes(t, n, side)
					for i := range src {
						src[i] = byte(i*7 + i>>8)
					}
					dst := guard.Bytes(t, n, side)
					for _, ahead := range m.ahead {
						m.read(src, ahead)
						clear(dst)
						m.copy(dst, src, ahead)
						if !bytes.Equal(dst, src) {
							t.Errorf("copy of %d bytes differs", n)
						}
					}
				}
				for _, n := range []int{0, 64, 128, 192, 4096} {
					dst := guard.Bytes(t, n, side)
					for i := range dst {
						dst[i] = 0xff
					}
					m.write(dst)
					if len(bytes.Trim(dst, "\x00")) != 0 {
						t.Errorf("write of %d bytes is incomplete", n)
					}
				}
			}
		})
	}
}

// TestMix checks that a stream reads and writes every byte once, in order, and at an even
// pace.
func TestMix(t *testing.T) {
	for _, tc := range []struct{ in, out, tile int }{{512, 64, 512}, {1 << 16, 1<<14 + 64, 2048}, {1 << 16, 64, 4096}, {1536, 4096, 1024},
		{512, 0, 2048}} {
		in, out := make([]byte, tc.in), make([]byte, tc.out)
		read, written := 0, 0
		m := mover{
			read: func(p []byte, _ int) {
				if len(p) == 0 || &p[0] != &in[read] || len(p)%chunkBytes != 0 {
					t.Errorf("%+v: reads %d bytes after %d", tc, len(p), read)
				}
				read += len(p)
			},
			write: func(p []byte) {
				if len(p) > 0 && &p[0] != &out[written] || len(p)%lineBytes != 0 {
					t.Errorf("%+v: writes %d bytes after %d", tc, len(p), written)
				}
				written += len(p)
				if behind := float64(tc.out)*float64(read)/float64(tc.in) - float64(written); behind < 0 || behind >= lineBytes && read < tc.in {
					t.Errorf("%+v: %d bytes written after %d were read", tc, written, read)
				}
			},
		}
		mix(m, in, out, tc.tile, 0)
		if read != tc.in || written != tc.out {
			t.Errorf("%+v: %d bytes read, %d written", tc, read, written)
		}
	}
}

func TestBuffer(t *testing.T) {
	for _, n := range []int{0, 1, 64, 1000, 1 << 16} {
		b := buffer(n)
		if len(b) != n || cap(b) != n || n > 0 && uintptr(unsafe.Pointer(&b[0]))%lineBytes != 0 {
			t.Errorf("buffer(%d): length %d, capacity %d, not at a cache line", n, len(b), cap(b))
		}
	}
}

// TestLimits measures every limit once, on little memory.
func TestLimits(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		teams(t, func(t *testing.T, team *Team) {
			mem := &Memory{}
			check := func(r Result, op string, unit Unit, work float64) {
				t.Helper()
				if r.Op != op || r.Unit != unit || r.Work != work || r.Threads != team.Threads() || r.Kernel == "" || !(r.Rate() > 0) ||
					math.IsInf(r.Rate(), 0) || !math.IsNaN(r.Limit) {
					t.Errorf("got %+v, want %s of %v in %s", r, op, work, unit)
				}
			}
			const n = 3 * 1024 * 4 // divisible by the granularity and by up to four threads
			check(team.Read(mem, n, 0), "read", Bytes, n)
			for _, way := range append(Ways(), AnyStores) {
				check(team.Write(mem, n, way, 0), "write", Bytes, n)
				check(team.Copy(mem, n, way, 0), "copy", Bytes, 2*n)
				check(team.Stream(mem, 2*n, n, way, 0), "stream", Bytes, 3*n)
			}
			all := team.Peaks(0)
			if len(all) == 0 {
				t.Error("got no peaks")
			}
			for _, r := range all {
				if !(r.Rate() > 0) || r.Op != "peak" || r.Kernel == "" || r.Unit == Bytes || r.Threads != team.Threads() {
					t.Errorf("%+v", r)
				}
			}
			if r, err := team.Peak("", 0); err != nil || r.Kernel != plainPeak.String() {
				t.Errorf("peak of portable Go: got %+v, %v", r, err)
			}
			for _, p := range peaks {
				if r, err := team.Peak(p.String(), 0); (err == nil) != cpu.Has(p.needs) || err == nil && r.Kernel != p.String() {
					t.Errorf("peak of %s: got %+v, %v", p, r, err)
				}
			}
		})
	})
}

// TestWay checks that a limit uses the requested stores if the tier supports them.
func TestWay(t *testing.T) {
	cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
		for _, w := range storing(AnyStores) {
			if !cpu.Uses(w.needs) {
				t.Errorf("%s needs %v, which the tier %v lacks", w.name, w.needs, tier)
			}
		}
		for _, way := range Ways() {
			if list := storing(way); len(list) != 1 || list[0].way != way {
				t.Errorf("got %d movers for %s stores, want one", len(list), way)
			}
		}
		if list := storing("none such"); list[0].name != ways()[0].name {
			t.Errorf("unknown stores: got %s", list[0].name)
		}
	})
}

func TestMachine(t *testing.T) {
	if m := host.ThisMachine(); m.CPU == "" || m.Processors < 1 || m.Tier != cpu.Best().String() || m.Go == "" || m.System == "" {
		t.Errorf("%+v", m)
	}
}
