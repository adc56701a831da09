//go:build purego

package slow

const purego = true
