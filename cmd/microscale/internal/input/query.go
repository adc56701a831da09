package input

import (
	"context"
	"strings"
	"unicode"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store"
)

// Queries are URLs of web servers as they were given, by what is before their query. Commands print what they were given,
// and queries may be signatures: so [Queries.Hide] removes them, and [Open] takes them from its context.
type Queries map[string]string

// Hide returns an argument without its query if it is the URL of a store. Two URLs that differ only in their query are
// an error.
func (q Queries) Hide(arg string) (string, error) {
	short := store.WithoutQuery(arg)
	if !store.Named(arg) || short == arg || strings.ContainsFunc(arg, unicode.IsSpace) {
		return arg, nil
	}
	if other, twice := q[short]; twice && other != arg {
		return short, show.Misuse("%s is given with two queries: give copies other names", short)
	}
	q[short] = arg
	return short, nil
}

// queries is the key of the Queries of a context.
type queries struct{}

// Context returns a context with q.
func (q Queries) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, queries{}, q)
}

// Given returns an argument as it was given, with its query.
func Given(ctx context.Context, arg string) string {
	q, _ := ctx.Value(queries{}).(Queries)
	if full, ok := q[arg]; ok {
		return full
	}
	return arg
}
