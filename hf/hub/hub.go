// Package hub opens a checkpoint on the Hugging Face Hub, or on a server that
// behaves like it, without fetching it first:
//
//	hf://owner/name             the latest revision
//	hf://owner/name@v1.0        a branch, a tag or a commit
//
// The small files (configuration, index, tokenizer) are fetched into the cache
// that huggingface_hub keeps, in its layout. Of weights that are not in that cache
// the header and then the tensors are read where they are, by range requests, and
// nothing is kept on the disk:
//
//	$HF_HOME/hub/models--owner--name/
//	├── refs/main                      the commit of a revision
//	├── blobs/ETAG                     content, by the hash that the hub has of it
//	└── snapshots/COMMIT/config.json   a link to its content
//
// Requests are repeated where connections end or fall silent or the server is busy,
// and go on from the byte where they ended. What is fetched whole is compared with the
// hub's hash of it; so are weights when all of them have been read, nearly in order.
// Weights that are fetched again must be the same bytes again. The token is sent to
// no host but the hub's.
package hub

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/microscale-go/microscale/internal/bounded"
)

// Scheme begins the name of a repository.
const Scheme = "hf://"

// A Repository is a model on the hub.
type Repository struct {
	Owner, Name string
	Revision    string // a branch, a tag or a commit
}

// part matches an owner or a name as the hub allows them.
var part = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)

// Parse reads hf://owner/name or hf://owner/name@revision.
func Parse(source string) (Repository, error) {
	rest, ok := strings.CutPrefix(source, Scheme)
	name, revision, given := strings.Cut(rest, "@")
	if !given {
		revision = "main"
	}
	owner, name, _ := strings.Cut(name, "/")
	if !ok || !part.MatchString(owner) || !part.MatchString(name) || strings.Contains(owner+name, "..") || strings.Contains(owner+name, "--") {
		return Repository{}, fmt.Errorf("%q does not name a model on the hub: write %sOWNER/NAME or %sOWNER/NAME@REVISION", source, Scheme, Scheme)
	}
	if !validRevision(revision) {
		return Repository{}, fmt.Errorf("%q does not name a revision: write a branch, a tag or a commit after the @", source)
	}
	return Repository{owner, name, revision}, nil
}

// validRevision reports whether git takes a revision as the name of a branch or a
// tag (git-check-ref-format), and all its characters are printable. It becomes part
// of addresses, of the cache's file names, and of messages.
func validRevision(revision string) bool {
	const longest = 255 // bytes, of a file name in the cache
	if len(revision) > longest || !utf8.ValidString(revision) || strings.ContainsAny(revision, " ~^:?*[\\#@%") || strings.Contains(revision, "..") || strings.HasSuffix(revision, ".") {
		return false
	}
	if strings.ContainsFunc(revision, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return false
	}
	for component := range strings.SplitSeq(revision, "/") {
		if component == "" || strings.HasPrefix(component, ".") || strings.HasSuffix(component, ".lock") {
			return false
		}
	}
	return true
}

// String returns the name that Parse reads.
func (r Repository) String() string {
	if r.Revision == "main" {
		return Scheme + r.Owner + "/" + r.Name
	}
	return Scheme + r.Owner + "/" + r.Name + "@" + r.Revision
}

// A Client is how to reach a hub.
type Client struct {
	Endpoint string // such as https://huggingface.co
	Token    string // "" where there is none
	Cache    string // the folder of models--owner--name

	wait      waiter            // between two attempts; nil: as long as it says
	random    func() float64    // in [0, 1), for the times of attempts; nil: rand.Float64
	silence   time.Duration     // of a server in the middle of an answer; 0: longestSilence
	transport http.RoundTripper // nil: the one that all clients share
}

// maxToken is the largest token file in bytes. A token has about 40.
const maxToken = 4 << 10

const defaultEndpoint = "https://huggingface.co"

// FromEnvironment returns the client that the variables of huggingface_hub ask
// for: HF_ENDPOINT, HF_TOKEN (else the token file in HF_HOME), HF_HUB_CACHE and
// HF_HOME. get is os.Getenv.
func FromEnvironment(get func(string) string) (*Client, error) {
	home := get("HF_HOME")
	if home == "" {
		cache := get("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("there is no home directory for the hub's cache (%w): set HF_HOME", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	c := &Client{Endpoint: strings.TrimRight(get("HF_ENDPOINT"), "/"), Token: strings.TrimSpace(get("HF_TOKEN")), Cache: get("HF_HUB_CACHE")}
	if c.Endpoint == "" {
		c.Endpoint = defaultEndpoint
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("HF_ENDPOINT %q is no address: write it as %s", c.Endpoint, defaultEndpoint)
	}
	if c.Token == "" {
		text, err := bounded.ReadFile(filepath.Join(home, "token"), maxToken)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the hub's token: %w: mend the file, remove it, or set HF_TOKEN", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	if c.Cache == "" {
		c.Cache = filepath.Join(home, "hub")
	}
	return c, nil
}
