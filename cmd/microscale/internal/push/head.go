package push

import (
	"context"
	"crypto/sha1" //nolint:gosec // Git names content by it
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/microscale-go/microscale/safetensors"
)

// A head is the last commit of the branch.
type head struct {
	SHA      string    `json:"sha"`
	Siblings []sibling `json:"siblings"`
}

// A sibling is a file of a commit.
type sibling struct {
	Name string `json:"rfilename"`
	Blob string `json:"blobId"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
	} `json:"lfs"`
}

// head asks for the last commit and the hashes of its files.
func (p *pusher) head(ctx context.Context) (h head, err error) {
	err = p.api(ctx, "GET", p.models()+"/revision/"+url.PathEscape(p.repository.Revision)+"?blobs=true", nil, &h)
	return h, err
}

// shardName matches the files of weights of a checkpoint as transformers names them: those of safetensors.ShardName, and
// model-00001-of-00001.safetensors, which it never returns and others write.
var shardName = regexp.MustCompile(`^model(-\d{5}-of-\d{5})?\.safetensors$`)

// stale returns the weights and the index of an earlier checkpoint that the files do not replace: readers of the repository could
// take them for weights of the new one. Beside files without weights of their own names, such as a GGUF file, all stay.
func (h head) stale(files []*File) (names []string) {
	if !slices.ContainsFunc(files, func(f *File) bool { return shardName.MatchString(f.Name) }) {
		return nil
	}
	for _, s := range h.Siblings {
		if (shardName.MatchString(s.Name) || s.Name == safetensors.IndexName) &&
			!slices.ContainsFunc(files, func(f *File) bool { return f.Name == s.Name }) {
			names = append(names, s.Name)
		}
	}
	return names
}

// has reports whether the commit has the files, and lacks those that a push removes.
func (h head) has(files []*File, removed []string) (bool, error) {
	for _, f := range files {
		at := slices.IndexFunc(h.Siblings, func(s sibling) bool { return s.Name == f.Name })
		if at < 0 {
			return false, nil
		}
		s, got, want := h.Siblings[at], "", f.sum
		if s.LFS != nil {
			got = s.LFS.SHA256
		}
		if !f.LFS {
			content, err := f.bytes(f.Size)
			if err != nil {
				return false, err
			}
			sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...)) //nolint:gosec // as above
			got, want = s.Blob, hex.EncodeToString(sum[:])
		}
		if got != want {
			return false, nil
		}
	}
	return !slices.ContainsFunc(h.Siblings, func(s sibling) bool { return slices.Contains(removed, s.Name) }), nil
}
