package hub_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/microscale-go/microscale/hf/hub"
	"github.com/microscale-go/microscale/safetensors"
)

// Read a tensor of a model on the hub, here a test server. For the real hub, FromEnvironment(os.Getenv)
// returns the Client.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(serve))
	defer server.Close()
	cache, err := os.MkdirTemp("", "hub")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(cache)

	client := &hub.Client{Endpoint: server.URL, Cache: cache, Transport: server.Client().Transport}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Open(ctx, "hf://owner/model")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	values, err := c.Floats("norm.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Path, values)

	if _, err := client.Open(ctx, "hf://owner/model@v2"); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("no revision v2")
	}
	// Output:
	// hf://owner/model [1 2 3]
	// no revision v2
}

// serve is a hub with one model of one file.
func serve(w http.ResponseWriter, r *http.Request) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: "norm.weight", Dtype: safetensors.BF16, Shape: []int64{3}}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	file := string(layout.HeaderBytes()) + "\x80\x3f\x00\x40\x40\x40"
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(file), file))
	switch r.URL.Path {
	case "/api/models/owner/model/revision/main":
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": []any{
			map[string]any{"rfilename": "model.safetensors", "size": len(file), "blobId": hex.EncodeToString(sum[:])},
		}})
	case "/owner/model/resolve/" + commit + "/model.safetensors":
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(file))
	default:
		http.NotFound(w, r)
	}
}
