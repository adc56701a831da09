package memory

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// Available returns how many bytes this process can still take: what the system has
// free or can free, swap included, and no more than the limits of its control groups
// leave.
func Available() int64 { return available(os.DirFS("/")) }

func available(root fs.FS) int64 {
	least := int64(unknown)
	info := fields(root, "proc/meminfo")
	if free, ok := info["MemAvailable:"]; ok {
		least = (free + info["SwapFree:"]) << 10 // KiB
	}
	for _, group := range groups(root) {
		limit, err := number(root, path.Join(group, "memory.max"))
		used, usedErr := number(root, path.Join(group, "memory.current"))
		if err == nil && usedErr == nil { // else the group has no limit
			cache := fields(root, path.Join(group, "memory.stat"))["file"] // the system frees it
			least = min(least, max(limit-used+cache, 0))
		}
	}
	return least
}

// groups returns the directories of the process's control group, version 2, and of
// those that it is in.
func groups(root fs.FS) []string {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	var list []string
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for dir := path.Clean("/" + name); ok; dir = path.Dir(dir) {
			list = append(list, path.Join("sys/fs/cgroup", dir))
			if dir == "/" {
				break
			}
		}
	}
	return list
}

// number reads a file of one number.
func number(root fs.FS, name string) (int64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

// fields reads a file of names and numbers, one pair a line.
func fields(root fs.FS, name string) map[string]int64 {
	text, _ := fs.ReadFile(root, name) // without it there are no pairs
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 {
			if v, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				values[f[0]] = v
			}
		}
	}
	return values
}
