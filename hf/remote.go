package hf

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/microscale-go/microscale/safetensors"
)

// A Remote is a safetensors file of a checkpoint that is not in its directory, but read through
// Reader.
type Remote struct {
	Name   string // file name, without a folder
	URL    string // used in errors
	Size   int64  // bytes
	Reader io.ReaderAt
}

// OpenRemote opens a directory like Open, with remote files in addition to its own. Skipped returns
// skipped too.
func OpenRemote(dir string, remotes []Remote, skipped []Skipped) (*Checkpoint, error) {
	c := &Checkpoint{Path: dir, byName: make(map[string]int), remotes: make(map[string]Remote, len(remotes)), skipped: skipped}
	for _, r := range remotes {
		c.remotes[r.Name] = r
	}
	if err := c.openDirectory(false); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Remote reports whether OpenRemote opened the checkpoint. The modification times of local files then
// have no meaning.
func (c *Checkpoint) Remote() bool { return c.remotes != nil }

// OpenFile returns a checkpoint of a single open file. config is the content of a config.json that
// describes it, or nil. If f is a view of several files, fileOf returns the name of the one that has a tensor; otherwise it is nil. Close
// closes the file.
func OpenFile(f *safetensors.File, config []byte, fileOf func(tensor string) string) (*Checkpoint, error) {
	c := &Checkpoint{Path: f.Name(), Single: true, Config: config, byName: make(map[string]int)}
	err := c.add(Shard{Name: filepath.Base(f.Name()), File: f})
	for i := range c.tensors {
		if t := &c.tensors[i]; fileOf != nil {
			t.Shard.Name = fileOf(t.Name)
		}
	}
	if err == nil && config != nil {
		err = c.parseConfig(f.Name())
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// open opens the remote file with the given name, or else a file of the directory.
func (c *Checkpoint) open(name, path string) (*safetensors.File, error) {
	if r, ok := c.remotes[name]; ok {
		return safetensors.NewFile(r.Reader, r.Size, r.URL)
	}
	return safetensors.Open(path)
}

// withRemotes returns the entries of the directory and those of the remote files.
func (c *Checkpoint) withRemotes(entries []fs.DirEntry) []fs.DirEntry {
	for _, r := range c.remotes {
		entries = append(entries, remoteEntry{r})
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}

// A remoteEntry is the fs.DirEntry and fs.FileInfo of a remote file.
type remoteEntry struct{ r Remote }

// Name returns the file name.
func (e remoteEntry) Name() string { return e.r.Name }

// IsDir returns false.
func (e remoteEntry) IsDir() bool { return false }

// Type returns the type of a regular file.
func (e remoteEntry) Type() fs.FileMode { return 0 }

// Info returns the entry itself.
func (e remoteEntry) Info() (fs.FileInfo, error) { return e, nil }

// Size returns the size in bytes.
func (e remoteEntry) Size() int64 { return e.r.Size }

// Mode returns the mode of a read-only file.
func (e remoteEntry) Mode() fs.FileMode { return 0o444 }

// ModTime returns the zero time.
func (e remoteEntry) ModTime() time.Time { return time.Time{} }

// Sys returns nil.
func (e remoteEntry) Sys() any { return nil }
