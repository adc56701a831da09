package memory

import (
	"testing"
	"testing/fstest"
)

func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal: 100 kB\nMemAvailable:  60 kB\nSwapFree: 4 kB\n"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tc := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"nothing is known": {fstest.MapFS{}, unknown},
		"no groups":        {fstest.MapFS{"proc/meminfo": file(meminfo)}, 64 << 10},
		"no limit": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("max\n"), "sys/fs/cgroup/memory.current": file("5\n")}, 64 << 10},
		"a limit": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/memory.max": file("1000\n"), "sys/fs/cgroup/a/memory.current": file("700\n"),
			"sys/fs/cgroup/a/memory.stat":  file("anon 600\nfile 100\n"),
			"sys/fs/cgroup/a/b/memory.max": file("900\n"), "sys/fs/cgroup/a/b/memory.current": file("100\n")}, 400},
		"over the limit": {fstest.MapFS{"proc/self/cgroup": file("1:cpu:/x\n0::/\n"),
			"sys/fs/cgroup/memory.max": file("10\n"), "sys/fs/cgroup/memory.current": file("20\n")}, 0},
	} {
		if got := available(tc.files); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
	if got := Available(); got <= 0 || got >= unknown {
		t.Errorf("Available: got %d", got)
	}
}

func TestText(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1.5 * (1 << 30): "1.5 GiB",
		(1 << 40) - 1: "1.0 TiB", 1 << 63: "8.0 EiB"} {
		if got := Text(bytes); got != want {
			t.Errorf("%g: got %q, want %q", bytes, got, want)
		}
	}
}
